//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestFrozenRuntime freezes a runtime for as long as the kubelet takes, with
// its real constants, until it gives the node up: the runtime counts as down
// 30 s after the last good Status, and Status runs every 5 s.
func TestFrozenRuntime(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.freeze(t, func(injected time.Time) {
		s.inFlightMoves(t)
		s.healthzIs(t, 200, "")
		gone := s.watch.Await(injected, 32*time.Second, "the kubelet's rules fail", isUnhealthy)
		if after := gone.At.Sub(injected); after < 24*time.Second {
			t.Errorf("unhealthy %s after the last good Status at the latest, want 25 s at least", seconds(after))
		}
		if want := "container runtime is down"; gone.KubeletMessage != want {
			t.Errorf("the kubelet's message is %q, want %q", gone.KubeletMessage, want)
		}
		s.healthzIs(t, 503, "container runtime is down")
		s.checkMetrics(t, map[string]float64{"pleg_healthy": 1, "pleg_sync_loop_allowed": 0, "pleg_node_ready_predicted": 1})
		s.countsDown(t, injected, gone)
		lab.Report(t, "a frozen runtime: the kubelet's rules fail %s after the freeze", seconds(gone.At.Sub(injected)))
	})
	s.checkMetrics(t, map[string]float64{"pleg_healthy": 1, "pleg_sync_loop_allowed": 1, "pleg_node_ready_predicted": 1})
	s.healthzIs(t, 200, healthy)
}

// TestFrozenRuntimePastThreshold is the same with a threshold so short that the
// PLEG's own rule is the first to fail.
func TestFrozenRuntimePastThreshold(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "--relist-threshold=6s")
	// The message of the node status update, which waits in Version for two
	// minutes: the 30-s rule has failed by then too.
	message := regexp.MustCompile(`^\[container runtime is down, PLEG is not healthy: ` +
		`pleg was last seen active [0-9.]+m[0-9.]+s ago; threshold is 6s\]$`)
	s.freeze(t, func(injected time.Time) {
		gone := s.watch.Await(injected, 8*time.Second, "the kubelet's rules fail", isUnhealthy)
		if !message.MatchString(gone.KubeletMessage) {
			t.Errorf("the kubelet's message is %q, want %s", gone.KubeletMessage, message)
		}
		s.healthzIs(t, 503, "PLEG is not healthy: pleg was last seen active ")
		s.checkMetrics(t, map[string]float64{"pleg_healthy": 0, "pleg_sync_loop_allowed": 0, "pleg_node_ready_predicted": 1})
		s.countsDown(t, injected, gone)
		// A relist that has hung leaves its start as the last seen. Thawed now, it
		// would be just within the threshold, and a moment later past it again.
		lab.Throughout(t, 2*time.Second, "the verdict is unhealthy", func() error {
			status, err := s.plegd.Status()
			if err == nil && status.State != unhealthy {
				err = fmt.Errorf("%s, %s", status.State, status.Reason)
			}
			return err
		})
	})
}

// TestStopDuringHang ends plegd while a relist of it hangs.
func TestStopDuringHang(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	frozenAt := time.Now()
	s.runtime.Freeze()
	s.watch.Await(frozenAt, 3*time.Second, "a relist hangs", func(sight lab.Sight) bool { return sight.State == degraded })
	code, took := s.plegd.Stop()
	if code != 0 {
		t.Errorf("plegd ended with %d, want 0", code)
	}
	if took > time.Second {
		t.Errorf("plegd took %s to end, want a second at most", took)
	}
	lab.Report(t, "SIGTERM in the middle of a hung relist: plegd ended after %s", seconds(took))
}

func isUnhealthy(sight lab.Sight) bool { return sight.State == unhealthy }

// inFlightMoves checks that the age of the phase under way grows from scrape to
// scrape though nothing returns, and that no other phase has one.
func (s *subject) inFlightMoves(t *testing.T) {
	t.Helper()
	phases := func() (ages map[string]float64) {
		ages = make(map[string]float64)
		m := s.plegd.MustMetrics()
		for _, phase := range []string{"list_podsandbox", "list_containers", "inspect"} {
			age, ok := m.Value("pleg_relist_inflight_seconds", "phase", phase)
			if !ok {
				t.Fatalf("there is no pleg_relist_inflight_seconds{phase=%q}", phase)
			}
			if age > 0 {
				ages[phase] = age
			}
		}
		return ages
	}
	lab.Eventually(t, 2*time.Second, "a relist hangs", func() error {
		if ages := phases(); len(ages) != 1 {
			return fmt.Errorf("phases under way: %v", ages)
		}
		return nil
	})
	const between = 1500 * time.Millisecond
	start := time.Now()
	first := phases()
	timer := time.NewTimer(between)
	defer timer.Stop()
	<-timer.C
	second := phases()
	passed := time.Since(start).Seconds()
	if len(first) != 1 || len(second) != 1 {
		t.Errorf("phases under way: %v and then %v, want one and the same", first, second)
		return
	}
	for phase, age := range first {
		if moved := second[phase] - age; math.Abs(moved-passed) > 0.3 {
			t.Errorf("pleg_relist_inflight_seconds{phase=%q} has moved by %.2f s in %.2f s", phase, moved, passed)
		}
	}
}

// countsDown checks that rules_fail_in said all along when the verdict would
// turn unhealthy, and that it did.
func (s *subject) countsDown(t *testing.T, injected time.Time, gone lab.Sight) {
	t.Helper()
	said := 0
	for _, sight := range s.watch.Sights(injected) {
		if !sight.At.Before(gone.At) {
			break
		}
		if sight.Kubelet.RulesFailIn == nil {
			continue
		}
		said++
		left := gone.At.Sub(sight.At).Seconds()
		if math.Abs(*sight.Kubelet.RulesFailIn-left) > 0.5 {
			t.Errorf("rules_fail_in was %.2f s when %.2f s were left", *sight.Kubelet.RulesFailIn, left)
			return
		}
	}
	if span := gone.At.Sub(injected); said < int(span/(250*time.Millisecond)) {
		t.Errorf("rules_fail_in was said only %d times in %s", said, seconds(span))
	}
	if gone.Kubelet.RulesFailIn == nil || *gone.Kubelet.RulesFailIn != 0 {
		t.Errorf("rules_fail_in is not 0 when a rule has tripped: %v", gone.Kubelet.RulesFailIn)
	}
}
