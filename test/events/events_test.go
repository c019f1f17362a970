//go:build e2e

package events

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// listen starts a plegd with --events=mode and waits until its event stream is in a phase.
func listen(t *testing.T, socket, mode, phase string, flags ...string) *lab.Plegd {
	t.Helper()
	p := lab.NewPlegd(t, socket, lab.PlegdOptions{Flags: append(flags, "--events="+mode)})
	lab.Eventually(t, 30*time.Second, "the event stream is "+phase, func() error {
		s, err := p.Status()
		if err == nil && s.Events.Phase != phase {
			err = fmt.Errorf("it is %q", s.Events.Phase)
		}
		return err
	})
	return p
}

// checkEvents compares a subscriber's events with those of containers, by their id.
func checkEvents(t *testing.T, s *runtime.Subscriber, want map[string]string) {
	t.Helper()
	lab.Eventually(t, 30*time.Second, "the other subscriber has every event", func() error {
		got := map[string][]string{}
		for _, e := range s.Events() {
			got[e.ID] = append(got[e.ID], e.Type)
		}
		for id, types := range want {
			if g := strings.Join(got[id], " "); g != types {
				return fmt.Errorf("%s: %s, want %s", id, g, types)
			}
		}
		return nil
	})
}

func awaitExit(t *testing.T, c *runtime.Container) (at time.Time) {
	t.Helper()
	lab.Eventually(t, 20*time.Second, "the container exits", func() error {
		if at = c.FinishedAt(); at.IsZero() {
			return errors.New("it has not")
		}
		return nil
	})
	return at
}

// TestNotUsed: containerd 1.6 has no events, and on 1.7 plegd would take the kubelet's. It
// does not listen, logs that once with the reason, and relists as without events; another
// subscriber of 1.7 gets every event. A request for a stream counts as an opened stream before
// the runtime answers it, as in the kubelet (GetContainerEvents of cri-client): 1.6 is asked once,
// 1.7 never.
func TestNotUsed(t *testing.T) {
	for _, tt := range []struct {
		version, mode, phase, logged string
		opened                       float64
	}{
		{mode: "hint", phase: "unsupported", logged: "no event stream", opened: 1},
		{mode: "evented", phase: "unsupported", logged: "no event stream", opened: 1},
		{version: runtime.Containerd17, mode: "evented", phase: "refused", logged: "only one of its subscribers"},
	} {
		t.Run(tt.version+tt.mode, func(t *testing.T) {
			t.Parallel()
			c := runtime.NewContainerd(t, runtime.ContainerdOptions{Version: tt.version})
			p := listen(t, c.Socket, tt.mode, tt.phase)
			p.AwaitState(20*time.Second, "healthy")
			if tt.version != "" {
				other, want := runtime.NewSubscriber(t, c.Socket), map[string]string{}
				pod := c.CRI(t).RunPod()
				for range 30 {
					made := pod.RunContainer("app", "--after=20ms")
					want[made.ID] = "CREATED STARTED STOPPED DELETED"
					awaitExit(t, made)
					made.Remove()
				}
				checkEvents(t, other, want)
			}
			p.AwaitRelists(time.Minute, 12) // the runtime is asked again every 10 s
			var logged []string
			for _, l := range p.Log.Since(0) {
				if l.String("events") != "" {
					logged = append(logged, l.Message()+" "+l.String("detail"))
				}
			}
			if len(logged) != 1 || !strings.Contains(logged[0], tt.logged) && !strings.Contains(logged[0], "Unimplemented") {
				t.Errorf("logged %q, want one line with %q", logged, tt.logged)
			}
			m := p.MustMetrics()
			period, _ := m.Value("pleg_relist_period_seconds")
			opened, _ := m.Value("pleg_evented_connection_success_total")
			if period != 1 || opened != tt.opened {
				t.Errorf("relists every %v s, %v streams opened; want 1 s and %v", period, opened, tt.opened)
			}
		})
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// freezeFor is how long a subscriber is stopped. Its lease is a third of that and 10 s at
// most.
func freezeFor(t *testing.T) (frozen, lease time.Duration) {
	t.Helper()
	frozen = lab.Duration(t, "PLEGD_EVENTS_FREEZE", 20*time.Second, 10*time.Second, 90*time.Second)
	return frozen, min(frozen/3, 10*time.Second).Truncate(time.Second)
}

// slack is how long a pod's start may take alone on a busy machine.
const slack = 4 * time.Second

// TestFrozenWithLease stops plegd in the middle of a thousand events. Pods of other clients
// wait for its lease to run out at most, another subscriber loses nothing, and plegd
// catches up afterwards.
func TestFrozenWithLease(t *testing.T) {
	frozen, lease := freezeFor(t)
	c := runtime.NewContainerd(t, runtime.ContainerdOptions{Version: runtime.Containerd2})
	other, r := runtime.NewSubscriber(t, c.Socket), c.CRI(t)
	p := listen(t, c.Socket, "evented", "streaming", "--events-lease="+lease.String())
	p.AwaitState(time.Minute, "healthy")

	w := work(r)
	w.await(t, 125)
	lab.Freeze(t, p.Pid())
	time.Sleep(time.Second) // a call that began before has ended
	w.longest()
	time.Sleep(frozen)
	lab.Thaw(t, p.Pid())
	longest := w.longest()
	w.await(t, 500)
	close(w.stop)
	w.done.Wait()
	lab.Report(t, "plegd stopped for %s with a lease of %s: the longest start or stop of a pod took %s", frozen, lease, round(longest))
	if longest > lease+slack {
		t.Errorf("a pod's start or stop took %s while plegd was stopped, with a lease of %s", longest, lease)
	}
	checkEvents(t, other, w.want)
	want := r.Containers()
	lab.Eventually(t, 30*time.Second, "plegd has caught up", func() error {
		s, err := p.Status()
		maps.DeleteFunc(s.Pods.Containers, func(_ string, n int) bool { return n == 0 })
		if err == nil && (!maps.Equal(s.Pods.Containers, want) || s.Pods.Running != w.pods || s.State != "healthy") {
			err = fmt.Errorf("%s, pods %+v; want %v in %d running pods", s.State, s.Pods, want, w.pods)
		}
		return err
	})
}

// worker makes two events after the other, of containers that come and go, and starts pods
// beside that. Every twentieth container and third pod is left for plegd to find.
type worker struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	want map[string]string // the events of each container
	pods int               // that are left
	// most is the longest call of a pod's start or end since it was asked for, under is when
	// the present one began.
	most  time.Duration
	under time.Time
}

func work(r *runtime.CRI) *worker {
	w := &worker{stop: make(chan struct{}), want: map[string]string{}, pods: 1}
	pod := r.RunPod()
	repeat := func(pause time.Duration, do func(i int)) {
		w.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-w.stop:
					return
				case <-time.After(pause):
					do(i)
				}
			}
		})
	}
	repeat(0, func(i int) {
		made, want := pod.CreateContainer("app"), "CREATED"
		if i%20 != 0 {
			made.Remove()
			want = "CREATED DELETED"
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.want[made.ID] = want
	})
	repeat(200*time.Millisecond, func(i int) {
		var made *runtime.Pod
		w.timed(func() { made = r.RunPod() })
		if i%3 != 0 {
			w.timed(made.Stop)
			w.timed(made.Remove)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pods++
	})
	return w
}

// timed makes one call of a pod's start or end: any of them may have to wait.
func (w *worker) timed(call func()) {
	w.mu.Lock()
	w.under = time.Now()
	w.mu.Unlock()
	call()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.under = max(w.most, time.Since(w.under)), time.Time{}
}

// longest returns how long the longest call took since it was last asked, the present one
// included.
func (w *worker) longest() (most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if most = w.most; !w.under.IsZero() {
		most = max(most, time.Since(w.under))
	}
	w.most = 0
	return most
}

// await waits until so many containers have been made.
func (w *worker) await(t *testing.T, n int) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, fmt.Sprintf("%d containers", n), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := len(w.want); got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}
