package relist

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

// run runs a loop until the test ends, and returns what stops it and waits.
func run(t *testing.T, l *Loop) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestSlidingPeriod: the next relist starts a period after the last one ended.
func TestSlidingPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, seen := newScript(t), newWatcher()
		rt.delay[cri.OpListPodSandbox], rt.delay[cri.OpListContainers] = 2*time.Second, 3*time.Second
		l := New(rt, Config{Period: DefaultPeriod}, seen)
		begin := time.Now()
		stop := run(t, l)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		stop()
		for i, at := range rt.starts {
			if want := begin.Add(time.Duration(i) * 6 * time.Second); !at.Equal(want) {
				t.Errorf("relist %d started after %v, want %v", i, at.Sub(begin), want.Sub(begin))
			}
		}
		if len(rt.starts) != 5 || len(seen.durations) != 5 {
			t.Errorf("%d relists started and %d ended, want 5 and 5", len(rt.starts), len(seen.durations))
		}
		for i, d := range seen.durations {
			if d != 5*time.Second || seen.serial[i] != d || !seen.ok[i] {
				t.Errorf("relist %d took %v, serially %v, ok %t; want 5s", i, d, seen.serial[i], seen.ok[i])
			}
		}
		if diff := cmp.Diff([]time.Duration{6 * time.Second, 6 * time.Second, 6 * time.Second, 6 * time.Second}, seen.intervals); diff != "" {
			t.Errorf("intervals (-want +got):\n%s", diff)
		}
	})
}

// TestLastSeen: it is the start of the relist, and is there before the
// inspections, however long they take.
func TestLastSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript(t)
		rt.containers = []*cri.Container{container("u", "c", cri.StateRunning)}
		rt.delay[cri.OpListPodSandbox], rt.delay[cri.OpListContainers] = 2*time.Second, 3*time.Second
		rt.hang[cri.OpContainerStatus] = true
		l := New(rt, Config{Period: time.Second, InspectTimeout: time.Minute}, nil)
		if s := l.Snapshot(); s.Attempts != 0 || s.Phase != Idle || !s.LastSeen.IsZero() || s.Last != nil || s.Counted {
			t.Errorf("before the first relist: %+v", s)
		}
		begin := time.Now()
		run(t, l)
		for _, tt := range []struct {
			at                            time.Duration
			phase                         Phase
			phaseStart                    time.Duration
			lastSeen, counted             bool
			listSandboxes, listContainers time.Duration
		}{
			{time.Second, ListingSandboxes, 0, false, false, 0, 0},
			{4 * time.Second, ListingContainers, 2 * time.Second, false, false, 2 * time.Second, 0},
			{6 * time.Second, Inspecting, 5 * time.Second, true, true, 2 * time.Second, 3 * time.Second},
			{64 * time.Second, Inspecting, 5 * time.Second, true, true, 2 * time.Second, 3 * time.Second},
		} {
			time.Sleep(tt.at - time.Since(begin))
			synctest.Wait()
			s := l.Snapshot()
			if s.Attempts != 1 || s.Phase != tt.phase || !s.Start.Equal(begin) || !s.PhaseStart.Equal(begin.Add(tt.phaseStart)) || s.Last != nil {
				t.Errorf("after %v: %+v", tt.at, *s)
			}
			if s.ListSandboxes != tt.listSandboxes || s.ListContainers != tt.listContainers {
				t.Errorf("after %v: lists %v and %v, want %v and %v", tt.at, s.ListSandboxes, s.ListContainers, tt.listSandboxes, tt.listContainers)
			}
			if s.LastSeen.Equal(begin) != tt.lastSeen || s.LastSeen.IsZero() == tt.lastSeen || s.Counted != tt.counted {
				t.Errorf("after %v: last seen %v, counted %t; want %t", tt.at, s.LastSeen, s.Counted, tt.lastSeen)
			}
			if inspecting := tt.phase == Inspecting; (len(s.Inspections) == 1) != inspecting {
				t.Errorf("after %v: %d inspections", tt.at, len(s.Inspections))
			} else if inspecting {
				op, began, call, ok := s.Inspections[0].Progress()
				if !ok || op != cri.OpContainerStatus || !began.Equal(begin.Add(5*time.Second)) || !call.Equal(began) {
					t.Errorf("after %v: progress %s %v %v %t", tt.at, op, began, call, ok)
				}
			}
		}
		time.Sleep(1500 * time.Millisecond) // cut at 65 s
		synctest.Wait()
		s := l.Snapshot()
		if s.Phase != ListingSandboxes && s.Phase != Idle || !s.LastSeen.Equal(begin) || s.Last == nil || s.Last.Err != nil || s.Reinspect != 1 || s.Inspections != nil {
			t.Errorf("after the relist: %+v", *s)
		}
		if got := l.Cache().Observed(); !got.Equal(begin) {
			t.Errorf("the cache is as new as %v, want the relist's start", got)
		}
	})
}

// TestFailedList: a list that fails keeps all that was, and is counted.
func TestFailedList(t *testing.T) {
	for _, op := range []cri.Operation{cri.OpListPodSandbox, cri.OpListContainers} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, seen := newScript(t), newWatcher()
				rt.sandboxes = []*cri.Sandbox{sandbox("u", "s", true)}
				rt.containers = []*cri.Container{container("u", "c", cri.StateRunning)}
				l := New(rt, Config{Period: time.Second}, seen)
				begin := time.Now()
				stop := run(t, l)
				synctest.Wait() // one good relist at 0
				drain(l)
				rt.set(func(s *script) {
					s.listErr[op] = failed(op, cri.CodeUnavailable)
					s.delay[op] = 500 * time.Millisecond
					s.containers = nil
				})
				time.Sleep(5*time.Second + 250*time.Millisecond) // failed ones from 1, 2.5 and 4 s
				synctest.Wait()
				s := l.Snapshot()
				if !s.LastSeen.Equal(begin) || s.Failures != 3 || s.RunningPods != 1 || s.Containers != [4]int{0, 1, 0, 0} || !s.Counted {
					t.Errorf("%+v", *s)
				}
				if s.Last.Err == nil || s.Last.Err.Operation != op || s.Last.Err.Code != cri.CodeUnavailable || s.Last.Seq != 4 {
					t.Errorf("last relist %+v", *s.Last)
				}
				if len(s.Lists) != 1 {
					t.Errorf("list times %v: a failed list has none", s.Lists)
				}
				if events := drain(l); len(events) > 0 || l.cache.Get("u") == nil || !l.cache.Observed().Equal(begin) {
					t.Errorf("events %v, cache %v as of %v", events, l.cache.Get("u"), l.cache.Observed())
				}
				rt.set(func(s *script) { s.listErr, s.delay = map[cri.Operation]error{}, map[cri.Operation]time.Duration{} })
				time.Sleep(500 * time.Millisecond) // a good one from 5.5 s
				synctest.Wait()
				if s := l.Snapshot(); s.Failures != 0 || s.LastSeen.Sub(begin) != 5500*time.Millisecond {
					t.Errorf("after a good one: %+v", *s)
				}
				if events := drain(l); len(events) != 2 { // the container's death and removal, seen now
					t.Errorf("events %v", events)
				}
				stop()
				half := 500 * time.Millisecond
				if diff := cmp.Diff([]time.Duration{0, half, half, half, 0}, seen.durations); diff != "" {
					t.Errorf("durations, failed ones too (-want +got):\n%s", diff)
				}
				if want := []bool{true, false, false, false, true}; !slices.Equal(seen.ok, want) {
					t.Errorf("results %v, want %v", seen.ok, want)
				}
				// Since the start of the last one that succeeded, not of the last one.
				intervals := []time.Duration{time.Second, 2500 * time.Millisecond, 4 * time.Second, 5500 * time.Millisecond}
				if diff := cmp.Diff(intervals, seen.intervals); diff != "" {
					t.Errorf("intervals (-want +got):\n%s", diff)
				}
				containerLists, _ := rt.counts(cri.OpListContainers)
				if want := map[cri.Operation]int{cri.OpListPodSandbox: 2, cri.OpListContainers: 5}[op]; containerLists != want {
					t.Errorf("%d lists of containers, want %d: none follows a failed list of sandboxes", containerLists, want)
				}
			})
		})
	}
}

// TestPlainErrors: an error that is none of package cri's is one all the same.
func TestPlainErrors(t *testing.T) {
	rt := newScript(t)
	rt.listErr[cri.OpListPodSandbox] = errors.New("plain")
	l := New(rt, Config{}, nil)
	l.relist(t.Context())
	if err := l.Snapshot().Last.Err; err == nil || err.Code != cri.CodeUnknown || err.Message != "plain" {
		t.Errorf("%+v", err)
	}
}

// TestNothingIsObservedBeforeTheFirstSuccess: an interval needs a relist that
// succeeded, and a last seen too.
func TestNothingIsObservedBeforeTheFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, seen := newScript(t), newWatcher()
		rt.listErr[cri.OpListPodSandbox] = failed(cri.OpListPodSandbox, cri.CodeUnavailable)
		l := New(rt, Config{Period: time.Second}, seen)
		stop := run(t, l)
		time.Sleep(10*time.Second + time.Millisecond)
		stop()
		if s := l.Snapshot(); s.Attempts != 11 || s.Failures != 11 || !s.LastSeen.IsZero() || s.Counted || len(seen.intervals) > 0 {
			t.Errorf("%+v, intervals %v", *s, seen.intervals)
		}
	})
}

// TestHungList: one relist hangs for the kubelet's 2 minutes, and there is no
// second one beside it.
func TestHungList(t *testing.T) {
	for _, op := range []cri.Operation{cri.OpListPodSandbox, cri.OpListContainers} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, seen := newScript(t), newWatcher()
				l := New(rt, Config{Period: time.Second}, seen)
				begin := time.Now()
				stop := run(t, l)
				time.Sleep(10*time.Second + 500*time.Millisecond)
				rt.set(func(s *script) { s.hang[op] = true })
				time.Sleep(119 * time.Second)
				synctest.Wait()
				s := l.Snapshot()
				phase := map[cri.Operation]Phase{cri.OpListPodSandbox: ListingSandboxes, cri.OpListContainers: ListingContainers}[op]
				if s.Attempts != 12 || s.Phase != phase || s.PhaseStart.Sub(begin) != 11*time.Second || s.LastSeen.Sub(begin) != 10*time.Second {
					t.Errorf("%+v", *s)
				}
				stop()
				if n, _ := rt.counts(op); n != 12 || len(seen.durations) != 11 {
					t.Errorf("%d lists and %d ended relists, want 12 and 11: the one that stopping ended says nothing", n, len(seen.durations))
				}
			})
		})
	}
}

// TestStopsPromptly in the middle of whatever hangs, and leaves no goroutine:
// the bubble would not end.
func TestStopsPromptly(t *testing.T) {
	for _, op := range []cri.Operation{cri.OpListPodSandbox, cri.OpListContainers, cri.OpPodSandboxStatus, cri.OpContainerStatus, "between two relists"} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, seen := newScript(t), newWatcher()
				for _, id := range []string{"1", "2", "3", "4", "5"} {
					rt.sandboxes = append(rt.sandboxes, sandbox("u"+id, "s"+id, true))
					rt.containers = append(rt.containers, container("u"+id, "c"+id, cri.StateRunning))
				}
				rt.hang[op] = true
				l := New(rt, Config{Period: time.Hour, InspectTimeout: time.Hour, InspectConcurrency: 2}, seen)
				stop := run(t, l)
				time.Sleep(time.Minute)
				synctest.Wait()
				before, told := *l.Snapshot(), seen.everything
				start := time.Now()
				stop()
				if d := time.Since(start); d != 0 {
					t.Errorf("Run went on for %v", d)
				}
				if rt.lists != 0 || rt.inspections != 0 {
					t.Errorf("%d lists and %d inspections are still under way", rt.lists, rt.inspections)
				}
				if op != "between two relists" {
					if seen.everything != told || l.Snapshot().Last != before.Last || len(l.results) > 0 {
						t.Errorf("a relist that stopping ended was told of as one: %+v", l.Snapshot())
					}
					if c := l.cache.Len(); c > 0 {
						t.Errorf("%d pods are in the cache", c)
					}
				}
			})
		})
	}
}

// TestStoppedBeforeItRuns asks nothing.
func TestStoppedBeforeItRuns(t *testing.T) {
	rt := newScript(t)
	l := New(rt, Config{Period: time.Second}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
	// One relist may have begun; none is told of.
	if s := l.Snapshot(); s.Last != nil || len(l.results) > 0 {
		t.Errorf("%+v", *s)
	}
}

// TestReady: when the first relist has been attempted, failed or not, or hangs.
func TestReady(t *testing.T) {
	for name, tt := range map[string]struct {
		rt   func(*script)
		want time.Duration
	}{
		"good":         {func(*script) {}, 0},
		"slow":         {func(s *script) { s.delay[cri.OpListPodSandbox] = time.Second }, time.Second},
		"failed":       {func(s *script) { s.listErr[cri.OpListPodSandbox] = errors.New("no") }, 0},
		"hung":         {func(s *script) { s.hang[cri.OpListContainers] = true }, 2 * time.Second},
		"hung, inside": {func(s *script) { s.hang[cri.OpContainerStatus] = true }, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := newScript(t)
				rt.containers = []*cri.Container{container("u", "c", cri.StateRunning)}
				tt.rt(rt)
				l := New(rt, Config{Period: time.Second, InspectTimeout: time.Hour}, nil)
				select {
				case <-l.Ready():
					t.Fatal("ready before it runs")
				default:
				}
				begin := time.Now()
				run(t, l)
				<-l.Ready()
				if d := time.Since(begin); d != tt.want {
					t.Errorf("ready after %v, want %v", d, tt.want)
				}
			})
		})
	}
}

// TestRecentLists: the times of the last 16 successful ones, oldest first, and a
// published snapshot stays as it is.
func TestRecentLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript(t)
		l := New(rt, Config{Period: time.Second}, nil)
		var early *Snapshot
		var kept []time.Duration
		for i := range 40 {
			rt.delay[cri.OpListPodSandbox] = time.Duration(i) * time.Millisecond
			l.relist(t.Context())
			if i == 9 {
				early = l.Snapshot()
				kept = slices.Clone(early.Lists)
			}
		}
		var want []time.Duration
		for i := 24; i < 40; i++ {
			want = append(want, time.Duration(i)*time.Millisecond)
		}
		if got := l.Snapshot().Lists; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if !slices.Equal(early.Lists, kept) || len(kept) != 10 {
			t.Errorf("an old snapshot became %v, was %v", early.Lists, kept)
		}
	})
}
