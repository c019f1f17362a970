//go:build e2e

package events

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestEvented: what plegd says that happened is what the runtime told another
// subscriber, container by container and in the same order, except while the
// stream was cut; and what was missed then is counted.
func TestEvented(t *testing.T) {
	c := lab.NewContainerd(t, lab.ContainerdOptions{Version: lab.Containerd2})
	pods := c.CRI(t).RunPods(4, 0)
	told := lab.NewSubscriber(t, c.Socket)
	proxy := lab.NewProxy(t, c.Socket)
	p := listen(t, proxy.Socket, "--events=evented")
	if v := metric(t, p, "pleg_relist_period_seconds"); v != 300 {
		t.Fatalf("the relist period is %v s, want 300", v)
	}
	awaitCaughtUp(t, p)
	first, firstLine := len(told.Events()), p.Log.Len()

	brief := func(n int) {
		lab.Two(n, func(i int) {
			made := pods[i%len(pods)].RunContainer("brief", "--after=30ms")
			// Removed before the runtime has told of its exit, it would be told to be
			// gone first.
			stopped(t, told, made.ID)
			made.Remove()
		})
	}
	brief(90)

	// In the middle of a burst the stream is cut, and no other can be had for a
	// while. What is changed then is still there when it is back.
	var mu sync.Mutex
	var made []*lab.Container
	burst := make(chan struct{})
	go func() {
		defer close(burst)
		lab.Two(60, func(i int) {
			args := []string{"--after=30ms"}
			if i%2 == 0 {
				args = nil // continues
			}
			one := pods[i%len(pods)].RunContainer("burst", args...)
			mu.Lock()
			made = append(made, one)
			mu.Unlock()
		})
	}()
	lab.Eventually(t, time.Minute, "the burst is in its middle", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(made) < 15 {
			return fmt.Errorf("%d containers", len(made))
		}
		return nil
	})
	opened := eventsOf(t, p).Opened
	cut := time.Now().Add(-time.Second) // what was on its way is lost too
	proxy.Refuse(true)
	lab.Eventually(t, time.Minute, "more of the burst has passed", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(made) < 35 {
			return fmt.Errorf("%d containers", len(made))
		}
		return nil
	})
	proxy.Refuse(false)
	lab.Eventually(t, time.Minute, "the stream is back", func() error {
		if e := eventsOf(t, p); e.Opened == opened || e.Stream != "streaming" || !e.InUse {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	back := time.Now()
	<-burst
	awaitCaughtUp(t, p)
	lab.Two(len(made), func(i int) {
		made[i].Stop()
		stopped(t, told, made[i].ID)
		made[i].Remove()
	})
	brief(30)

	awaitRemovals(t, told, first)
	all := told.Events()[first:]
	if told.Err() != "" {
		t.Fatalf("the other subscriber's stream ended: %s", told.Err())
	}
	want, transitions := histories(all)
	inCut := during(all, cut, back)
	if transitions < 500 {
		t.Errorf("%d transitions, want 500", transitions)
	}
	different := map[string]string{}
	lab.Eventually(t, 20*time.Second, "plegd's history is the runtime's", func() error {
		clear(different)
		history := p.Log.Events(firstLine)
		for id, w := range want {
			var got []string
			for _, e := range history[id] {
				got = append(got, e.Type)
			}
			if slices.Equal(got, w) {
				continue
			}
			if !inCut[id] {
				return fmt.Errorf("%s, outside the cut: %v, want %v", id, got, w)
			}
			different[id] = fmt.Sprintf("%v, want %v", got, w)
		}
		return nil
	})
	lab.Report(t, "evented: %d transitions of %d containers; %d had events while the stream was cut, %d of these tell another history",
		transitions, len(want), len(inCut), len(different))
	if len(different) > len(inCut) {
		t.Logf("the cut was from %s to %s", cut.Format(time.StampMilli), back.Format(time.StampMilli))
		logHistories(t, different, all, p.Log.Since(firstLine))
		t.Errorf("the history of %d containers differs: want at most the %d that changed in the cut", len(different), len(inCut))
	}
}

// awaitRemovals waits until the other subscriber has every container's removal:
// the last ones may still be on their way to it.
func awaitRemovals(t *testing.T, told *lab.Subscriber, first int) {
	t.Helper()
	lab.Eventually(t, 20*time.Second, "the other subscriber has every container's removal", func() error {
		removed := map[string]bool{}
		for _, e := range told.Events()[first:] {
			removed[e.ID] = removed[e.ID] || e.Type == "DELETED"
		}
		for id, ok := range removed {
			if !ok {
				return fmt.Errorf("%s has not been removed", id)
			}
		}
		return nil
	})
}

// histories returns what plegd must log of each container for what the runtime
// sent, and the number of transitions.
func histories(sent []lab.RuntimeEvent) (want map[string][]string, transitions int) {
	want = map[string][]string{}
	for _, e := range sent {
		if e.Type != "CREATED" {
			transitions++
		}
		want[e.ID] = append(want[e.ID], map[string][]string{
			"STARTED": {"ContainerStarted"}, "STOPPED": {"ContainerDied"}, "DELETED": {"ContainerDied", "ContainerRemoved"},
		}[e.Type]...)
	}
	return want, transitions
}

// during returns the containers that had events between two times.
func during(sent []lab.RuntimeEvent, from, to time.Time) map[string]bool {
	ids := map[string]bool{}
	for _, e := range sent {
		if e.CreatedAt.After(from) && e.CreatedAt.Before(to) {
			ids[e.ID] = true
		}
	}
	return ids
}

// logHistories logs of each container whose history differs what the runtime
// sent and what plegd logged.
func logHistories(t *testing.T, different map[string]string, sent []lab.RuntimeEvent, logged []lab.Line) {
	t.Helper()
	for id, d := range different {
		t.Logf("%s: %s", id, d)
		for _, e := range sent {
			if e.ID == id {
				t.Logf("    %s %s", e.CreatedAt.Format(time.StampMilli), e.Type)
			}
		}
		for _, l := range logged {
			if l.String("container_id") == id {
				t.Logf("        %s %s", l.String("time"), l.String("type"))
			}
		}
	}
}

type streamStatus = struct {
	Stream   string
	InUse    bool
	FellBack bool
	Opened   uint64
	Missed   uint64
	Lapses   uint64
}

func eventsOf(t *testing.T, p *lab.Plegd) streamStatus {
	t.Helper()
	s, err := p.Status()
	if err != nil {
		t.Fatal(err)
	}
	return streamStatus{s.Events.Phase, s.Events.InUse, s.Events.FellBack, s.Events.Opened, s.Events.Missed, s.Events.Lapses}
}

// awaitCaughtUp waits until the relist that plegd makes when a stream holds has
// been made, and what it found has had its time to be told by an event.
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
