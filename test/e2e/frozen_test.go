//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// TestFrozenRuntime freezes a runtime for as long as the kubelet takes, with its real
// constants, until it gives the node up: the runtime counts as down 30 s after the last
// good Status, and Status runs every 5 s.
func TestFrozenRuntime(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	injected := time.Now()
	s.runtime.Freeze()
	s.watch.Await(injected, 3*time.Second, "the freeze is named", func(sight lab.Sight) bool {
		return sight.Reason == health.RuntimeFrozen && sight.State == degraded
	})
	s.healthzIs(t, 200, "")
	gone := s.watch.Await(injected, 32*time.Second, "the kubelet's rules fail", func(sight lab.Sight) bool { return sight.State == unhealthy })
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

	s.runtime.Thaw()
	s.recovers(t, time.Now(), recovery)
	s.checkMetrics(t, map[string]float64{"pleg_healthy": 1, "pleg_sync_loop_allowed": 1, "pleg_node_ready_predicted": 1})
	s.healthzIs(t, 200, healthy)

	// plegd ends at once while a relist of it hangs.
	again := time.Now()
	s.runtime.Freeze()
	s.watch.Await(again, 3*time.Second, "a relist hangs", func(sight lab.Sight) bool { return sight.State == degraded })
	if code, took := s.plegd.Stop(); code != 0 || took > time.Second {
		t.Errorf("plegd ended with %d after %s, want 0 and a second at most", code, took)
	}
}

// countsDown checks that rules_fail_in was right all along, and 0 at the end.
func (s *subject) countsDown(t *testing.T, injected time.Time, gone lab.Sight) {
	t.Helper()
	samples := 0
	for _, sight := range s.watch.Sights(injected) {
		if !sight.At.Before(gone.At) {
			break
		}
		if sight.Kubelet.RulesFailIn == nil {
			continue
		}
		samples++
		if left := gone.At.Sub(sight.At).Seconds(); math.Abs(*sight.Kubelet.RulesFailIn-left) > 0.5 {
			t.Errorf("rules_fail_in was %.2f s when %.2f s were left", *sight.Kubelet.RulesFailIn, left)
			return
		}
	}
	if span := gone.At.Sub(injected); samples < int(span/(250*time.Millisecond)) {
		t.Errorf("rules_fail_in was there only %d times in %s", samples, seconds(span))
	}
	if gone.Kubelet.RulesFailIn == nil || *gone.Kubelet.RulesFailIn != 0 {
		t.Errorf("rules_fail_in is not 0 when a rule has failed: %v", gone.Kubelet.RulesFailIn)
	}
}

// TestSteadyNode watches a node on which nothing happens: plegd must find nothing and log
// nothing.
func TestSteadyNode(t *testing.T) {
	t.Parallel()
	runtime := runtime.NewContainerd(t, runtime.ContainerdOptions{})
	runtime.CRI(t).RunPods(20, 1)
	s := watched(t, runtime)
	logged := s.plegd.Log.Len()
	lab.Throughout(t, 20*time.Second, "the verdict is healthy", s.isWell)
	for _, line := range s.plegd.Log.Since(logged) {
		if !line.Quiet() {
			t.Errorf("a line of the log of a steady node: %s", line.Text)
		}
	}
	if events := s.plegd.Log.Events(logged); len(events) > 0 {
		t.Errorf("events of a steady node: %v", events)
	}
}

// isWell returns an error while the verdict is not healthy.
func (s *subject) isWell() error {
	status, err := s.plegd.Status()
	if err == nil && !well(status) {
		err = fmt.Errorf("%s, %s: %+v", status.State, status.Reason, status.Reasons)
	}
	return err
}
