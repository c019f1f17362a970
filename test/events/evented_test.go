//go:build e2e

package events

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// awaitCaughtUp waits until the relist that plegd makes when a stream holds has
// been made.
func awaitCaughtUp(t *testing.T, p *lab.Plegd) {
	t.Helper()
	attempts := func() (uint64, error) {
		s, err := p.Status()
		if err == nil && s.Relist.InFlight != nil {
			err = errors.New("a relist is under way")
		}
		return s.Relist.Attempts, err
	}
	var last uint64
	since := time.Now()
	lab.Eventually(t, time.Minute, "no relist is made for 5 s", func() error {
		n, err := attempts()
		if n != last || err != nil {
			last, since = n, time.Now()
		}
		if time.Since(since) < 5*time.Second {
			return fmt.Errorf("relist %d was %s ago", last, time.Since(since))
		}
		return err
	})
}

// TestTenCuts: after five failures in a row plegd continues as without events, and
// is back to them when a stream holds.
func TestTenCuts(t *testing.T) {
	t.Parallel()
	c := lab.NewContainerd(t, lab.ContainerdOptions{Version: lab.Containerd2})
	proxy := lab.NewProxy(t, c.Socket)
	p := listen(t, proxy.Socket, "--events=evented", "--events-lease=3s")
	inUse := func() float64 { return metric(t, p, "pleg_evented_in_use") }
	lab.Eventually(t, 20*time.Second, "events are in use", func() error {
		if inUse() != 1 {
			return errors.New("they are not")
		}
		return nil
	})
	before := metric(t, p, "pleg_evented_connection_errors_total")
	fell := false
	lab.Eventually(t, 2*time.Minute, "ten cuts", func() error {
		proxy.Cut()
		if !fell && inUse() == 0 {
			fell = true
			if v := metric(t, p, "pleg_relist_period_seconds"); v != 1 {
				t.Errorf("fallen back, the relist period is %v s, want 1", v)
			}
			if v := metric(t, p, "pleg_threshold_seconds"); v != 180 {
				t.Errorf("fallen back, the threshold is %v s, want 180", v)
			}
		}
		if n := metric(t, p, "pleg_evented_connection_errors_total") - before; n < 10 {
			return fmt.Errorf("%v failures", n)
		}
		return nil
	})
	if !fell {
		t.Error("events were in use all the time")
	}
	took := lab.Eventually(t, time.Minute, "events are in use again", func() error {
		if inUse() != 1 {
			return errors.New("they are not")
		}
		return nil
	})
	if v := metric(t, p, "pleg_threshold_seconds"); v != 600 {
		t.Errorf("back to events, the threshold is %v s, want 600", v)
	}
	p.AwaitState(30*time.Second, "healthy")
	lab.Report(t, "evented: after ten cuts in a row, events in use again %s after the last", took.Round(100*time.Millisecond))
}
