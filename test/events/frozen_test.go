//go:build e2e

package events

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// freezeFor is how long a subscriber is stopped. Its lease, where it has one, is
// a third of that and 10 s at most.
func freezeFor(t *testing.T) (frozen, lease time.Duration) {
	t.Helper()
	frozen = 20 * time.Second
	if s := os.Getenv("PLEGD_EVENTS_FREEZE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 10*time.Second || d > 90*time.Second {
			t.Fatalf("PLEGD_EVENTS_FREEZE is %q: want 10s to 90s", s)
		}
		frozen = d
	}
	return frozen, min(frozen/3, 10*time.Second).Truncate(time.Second)
}

// slack is what a pod's start may take by itself on a machine that is busy.
const slack = 4 * time.Second

// TestFrozenWithLease: plegd is stopped in the middle of a thousand events. Pods
// of other clients wait for its lease to run out at most, another subscriber
// loses nothing, and plegd catches up afterwards.
func TestFrozenWithLease(t *testing.T) {
	frozen, lease := freezeFor(t)
	c := lab.NewContainerd(t, lab.ContainerdOptions{Version: lab.Containerd2})
	other := lab.NewSubscriber(t, c.Socket)
	p := listen(t, c.Socket, "--events=evented", "--events-lease="+lease.String())
	awaitCaughtUp(t, p)

	w := work(t, c)
	w.await(t, 125)
	lab.Freeze(t, p.Pid())
	before := w.containers.Load()
	w.startsFrom(time.Now())
	time.Sleep(frozen)
	lab.Thaw(t, p.Pid())
	longest, during := w.longest(), 2*(w.containers.Load()-before)
	w.await(t, 500)
	kept := w.end(t)

	lab.Report(t, "plegd stopped for %s with a lease of %s: the longest start or stop of a pod took %s; %d events of containers in that time", frozen, lease, round(longest), during)
	if longest > lease+slack {
		t.Errorf("a pod's start or stop took %s while plegd was stopped, with a lease of %s", longest, lease)
	}
	lab.Eventually(t, 30*time.Second, "the other subscriber has every event", func() error { return lacks(other.Events(), w.want()) })
	lab.Eventually(t, 30*time.Second, "plegd has caught up", func() error {
		s, err := p.Status()
		if err == nil && (s.Pods.Containers["created"] != kept || s.Pods.Running == nil || *s.Pods.Running != w.running || s.State != "healthy") {
			err = fmt.Errorf("%s, pods %+v; want %d created containers and %d running pods", s.State, s.Pods, kept, w.running)
		}
		return err
	})
}

// worker makes two events after the other, of containers that come and go, and
// starts pods beside that.
type worker struct {
	containers atomic.Int64
	stop       chan struct{}
	done       sync.WaitGroup

	mu   sync.Mutex
	ids  map[string][]string // what is to be told, by id
	kept int                 // containers
	pods int
	// running are the pods that are left.
	running int
	from    time.Time
	starts  []time.Duration
	under   time.Time // when the pod's start under way began
}

func work(t *testing.T, c *lab.Containerd) *worker {
	t.Helper()
	r := c.CRI(t)
	pod := r.RunPod()
	w := &worker{stop: make(chan struct{}), ids: map[string][]string{}, running: 1}
	w.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			default:
			}
			made := pod.CreateContainer("app")
			want := []string{"CREATED", "DELETED"}
			if i%20 == 0 { // for plegd to find
				want = want[:1]
			} else {
				made.Remove()
			}
			w.mu.Lock()
			w.ids[made.ID] = want
			w.kept += 2 - len(want)
			w.mu.Unlock()
			w.containers.Add(1)
		}
	})
	w.done.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			var made *lab.Pod
			w.timed(func() { made = r.RunPod() })
			w.mu.Lock()
			w.pods++
			keep := w.pods%3 == 0
			if keep {
				w.running++
			}
			w.mu.Unlock()
			if !keep { // the others are for plegd to find
				w.timed(made.Stop)
				w.timed(made.Remove)
			}
		}
	})
	return w
}

// timed makes one call of a pod's start or end: any of them may have to wait.
func (w *worker) timed(call func()) {
	begun := time.Now()
	w.mu.Lock()
	w.under = begun
	w.mu.Unlock()
	call()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under = time.Time{}
	if !w.from.IsZero() {
		w.starts = append(w.starts, time.Since(begun))
	}
}

// await waits until so many containers have been made.
func (w *worker) await(t *testing.T, n int64) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, fmt.Sprintf("%d containers", n), func() error {
		if got := w.containers.Load(); got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

// startsFrom begins to note how long the starts of pods take.
func (w *worker) startsFrom(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = now
}

// longest is how long the longest start took since, the one under way included.
func (w *worker) longest() (most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.starts {
		most = max(most, d)
	}
	if !w.under.IsZero() {
		most = max(most, time.Since(w.under))
	}
	return most
}

// end ends the work and returns how many containers are left.
func (w *worker) end(t *testing.T) (kept int) {
	t.Helper()
	close(w.stop)
	ended := make(chan struct{})
	go func() {
		w.done.Wait()
		close(ended)
	}()
	lab.Eventually(t, 2*time.Minute, "the work ends", func() error {
		select {
		case <-ended:
			return nil
		default:
			return errors.New("it has not")
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept
}

// want are the events of each container that were to be told.
func (w *worker) want() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ids
}
