package relist

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// both are the loop and the obvious kubelet on one runtime.
type both struct {
	*world
	*watcher // of the loop, beside which Event notes the pods
	k        *kubelet
	l        *Loop
	begin    time.Time
	mu       sync.Mutex
	settled  []string
}

// watchBoth runs both until the test ends.
func watchBoth(t *testing.T, w *world) *both {
	b := &both{world: w, watcher: newWatcher(), k: &kubelet{rt: w}, begin: time.Now()}
	b.l = New(w, time.Second, b)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = b.l.Run(ctx) })
	done.Go(func() { b.k.run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return b
}

func (b *both) Event(e Event) {
	at := stamp(time.Now()) + " " + e.PodUID
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Type != ContainerChanged && (len(b.settled) == 0 || b.settled[len(b.settled)-1] != at) { // several events of a pod are one
		b.settled = append(b.settled, at)
	}
}

// settled runs f beside both, which have relisted a runtime of so many pods for 10.5 s.
func settled(t *testing.T, pods int, f func(t *testing.T, w *world, b *both)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(pods)
		b := watchBoth(t, w)
		b.to(10*time.Second + 500*time.Millisecond)
		f(t, w, b)
	})
}

// to lets time pass until d after the begin, and compares both four times a second.
func (b *both) to(d time.Duration) {
	for time.Since(b.begin) < d {
		time.Sleep(250*time.Millisecond + 7*time.Microsecond)
		synctest.Wait()
		b.k.mu.Lock()
		seen := b.k.seen
		b.k.mu.Unlock()
		if seen.IsZero() {
			continue
		}
		must.Equal(b.t, b.l.Snapshot().LastSeen.Sub(epoch), seen.Sub(epoch), "%s: last seen", time.Since(b.begin))
	}
}

func (b *both) age() time.Duration { return time.Since(b.l.Snapshot().LastSeen) }

// TestRandomHistories: the same last seen at every moment, and every pod settled at
// the same moment, over random histories. HISTORIES=200 plays more of them.
func TestRandomHistories(t *testing.T) {
	n := 10
	if s := os.Getenv("HISTORIES"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	for seed := range n {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomHistory(t, uint64(seed)) })
		})
	}
}

// randomHistory plays 20 min in which pods change and calls hang, fail and are slow.
func randomHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.add(3 + r.IntN(20))
	b := watchBoth(t, w)
	number := 1000
	releases := map[string]time.Time{}
	for time.Since(b.begin) < 20*time.Minute {
		b.to(time.Since(b.begin) + time.Duration(r.IntN(3000))*time.Millisecond)
		for key, at := range releases {
			if time.Now().After(at) {
				w.release(key)
				synctest.Wait() // both have the state until now
				delete(releases, key)
			}
		}
		pick := ""
		if uids := slices.Sorted(maps.Keys(w.pods)); len(uids) > 0 {
			pick = uids[r.IntN(len(uids))]
		}
		for range r.IntN(4) {
			number++
			w.set(func() { changePods(r, w, pick, number) })
		}
		if key, most := disturb(r, w, pick); most > 0 {
			w.hang(key)
			releases[key] = time.Now().Add(time.Duration(1+r.IntN(most)) * time.Second)
		}
	}
	b.k.mu.Lock()
	defer b.k.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.k.settled)
	slices.Sort(b.settled)
	check.Same(t, b.settled, b.k.settled, "pods settled by the kubelet (-) and the loop (+)")
}

// changePods adds a pod, removes one, or changes the state of one.
func changePods(r *rand.Rand, w *world, pick string, number int) {
	switch r.IntN(6) {
	case 0, 1:
		uid := fmt.Sprintf("pod%d", number)
		w.pods[uid] = &worldPod{uid: uid, created: int64(number), state: cri.StateRunning}
	case 2:
		delete(w.pods, pick)
	default:
		if p := w.pods[pick]; p != nil {
			p.state = []cri.State{cri.StateRunning, cri.StateExited}[r.IntN(2)]
		}
	}
}

// disturb makes calls slow or fail, or ends that. It returns the call that is to hang, for
// most seconds at most.
func disturb(r *rand.Rand, w *world, pick string) (key string, most int) {
	key = []string{
		pick, pick, cri.OpListContainers, cri.OpListPodSandbox, cri.OpContainerStatus, cri.OpPodSandboxStatus,
	}[r.IntN(6)]
	slow := time.Duration(r.IntN(3000)) * time.Millisecond
	switch r.IntN(40) {
	case 0:
		return pick, 300
	case 1:
		return key, 200
	case 2, 3:
		w.set(func() { w.slow[key] = slow })
	case 4, 5, 6:
		w.set(func() { clear(w.slow) })
	case 7:
		w.set(func() { w.fails[key] = true })
	case 8, 9, 10:
		w.set(func() { clear(w.fails) })
	}
	return "", 0
}

// TestSlowPods: 200 pods that change at once and take a second each. The countdown
// is right from the first pods on.
func TestSlowPods(t *testing.T) {
	settled(t, 200, func(t *testing.T, w *world, b *both) {
		w.set(func() {
			w.slow[cri.OpContainerStatus] = time.Second
			for _, p := range w.pods {
				p.state = cri.StateExited
			}
		})
		for d := 15 * time.Second; d < 208*time.Second; d += 24 * time.Second {
			b.to(d)
			n, about := b.l.Snapshot().remaining(time.Now(), 2*time.Minute)
			t.Logf("%s: %d remain until about %s", d, n, about.Sub(b.begin))
			if end := about.Sub(b.begin); end < 210*time.Second || end > 213*time.Second {
				t.Errorf("%s: the round is to end at %s", d, end)
			}
			if time.Since(b.l.Snapshot().Listed) > 2*time.Second {
				t.Errorf("%s: no lists for %s", d, time.Since(b.l.Snapshot().Listed))
			}
		}
		if b.age() < 3*time.Minute {
			t.Error(b.age())
		}
		b.to(220 * time.Second)
		if b.age() > 2*time.Second {
			t.Error(b.age())
		}
	})
}

// TestTwoStuckPods: two pods that hang for good cost 2 min each in every round.
func TestTwoStuckPods(t *testing.T) {
	settled(t, 10, func(t *testing.T, w *world, b *both) {
		w.hang("pod003")
		w.hang("pod007")
		w.set(func() { w.pods["pod003"].state, w.pods["pod007"].state = cri.StateExited, cri.StateExited })
		for _, d := range []int{12, 20, 40, 100, 140, 200, 249, 253, 400} {
			b.to(time.Duration(d) * time.Second)
			r, m := b.l.Snapshot().Facts(time.Now(), 2*time.Minute, b.l.Throttled)
			if d == 20 && (len(r.Inspecting) != 2 || m.Inspecting != 2 || m.EndsBy.Sub(b.begin) != 251*time.Second) {
				t.Errorf("%d s: %+v %+v", d, r, m)
			}
			if d == 40 && len(r.Failing) != 1 {
				t.Errorf("%d s: %+v %+v", d, r, m)
			}
		}
		w.release("pod003")
		w.release("pod007")
		b.to(420 * time.Second)
		if b.age() > 2*time.Second {
			t.Error(b.age())
		}
	})
}

// TestListHangsDuringInspections: seen within a period, and the kubelet's own list
// hangs only from the end of its inspections on.
func TestListHangsDuringInspections(t *testing.T) {
	settled(t, 10, func(t *testing.T, w *world, b *both) {
		w.hang("pod003")
		w.set(func() { w.pods["pod003"].state = cri.StateExited })
		b.to(20 * time.Second)
		w.hang(cri.OpListContainers)
		b.to(22 * time.Second)
		s := b.l.Snapshot()
		if s.Beside.Phase != facts.PhaseListContainers || time.Since(s.Beside.PhaseStart) > 2*time.Second || s.Relist.Phase != facts.PhaseInspect {
			t.Errorf("%+v", s.Beside)
		}
		b.to(50 * time.Second)
		w.release("pod003")
		b.to(60 * time.Second)
		if s = b.l.Snapshot(); s.Relist.Phase != facts.PhaseListContainers || s.Beside.Phase != facts.PhaseListContainers {
			t.Errorf("%s %+v", s.Relist.Phase, s.Beside)
		}
		t.Logf("the list beside hangs for %s, the round's for %s", time.Since(s.Beside.PhaseStart).Round(time.Second), time.Since(s.Relist.PhaseStart).Round(time.Second))
		b.to(100 * time.Second)
		w.release(cri.OpListContainers)
		b.to(110 * time.Second)
		if b.age() > 2*time.Second {
			t.Error(b.age())
		}
	})
}

// TestRestart: a kubelet that restarts gives up its relist, and has seen nothing.
func TestRestart(t *testing.T) {
	settled(t, 10, func(t *testing.T, w *world, b *both) {
		w.hang("pod003")
		w.set(func() { w.pods["pod003"].state = cri.StateExited })
		b.to(40 * time.Second)
		w.release("pod003")
		w.hang("pod010")
		b.l.Restart()
		synctest.Wait()
		if s := b.l.Snapshot(); time.Since(s.LastSeen) > 0 || len(s.Inspections) != 10 || inspected(s) != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(10 * time.Second)
		w.release("pod010")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.age() > 2*time.Second {
			t.Error(b.age())
		}
	})
}

func inspected(s *Snapshot) (n int) {
	for _, i := range s.Inspections {
		if _, _, ended := i.State(); ended {
			n++
		}
	}
	return n
}
