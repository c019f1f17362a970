package relist

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
)

// burst makes a relist of 500 pods of which 200 have changed, on the real client
// and a fake runtime whose inspections take what answer makes of them.
func burst(t *testing.T, first bool, answer func(rt *fakeruntime.Runtime)) (took, serial time.Duration) {
	rt := fakeruntime.New(fakeruntime.Options{Seed: 1})
	rt.FillPods(500, 2)
	rt.Start()
	t.Cleanup(rt.Stop)
	client, err := cri.New(cri.Options{Dial: rt.Dialer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l := New(client, Config{Period: time.Second, InspectConcurrency: 16, InspectTimeout: time.Minute}, nil)
	if first {
		l.relist(t.Context())
	}
	rt.Churn(0.4)
	answer(rt)
	l.relist(t.Context())
	last := l.Snapshot().Last
	if want := 200; first && last.Changed != want {
		t.Fatalf("%d pods changed, want %d", last.Changed, want)
	}
	if last.Failed > 0 {
		t.Fatalf("%d inspections failed", last.Failed)
	}
	return last.End.Sub(last.Start), last.Serial
}

const rpc = 5 * time.Millisecond

// TestBurstAtOnce: a runtime that answers calls side by side is asked many at
// once: a tenth of the time that the kubelet takes.
func TestBurstAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, serial := burst(t, true, func(rt *fakeruntime.Runtime) {
			rt.Set("PodSandboxStatus", fakeruntime.Delay(rpc))
			rt.Set("ContainerStatus", fakeruntime.Delay(rpc))
		})
		t.Logf("200 of 500 pods changed: %v, one call after another %v", took, serial)
		if took > serial/10 {
			t.Errorf("a burst took %v, one call after another %v: want a tenth at most", took, serial)
		}
	})
}

// TestBurstOneAfterAnother: a runtime that answers one call after another is
// never asked more than four at once, also in the first relist, when nothing is
// known of it, and is as busy all the time as if it were asked by one.
func TestBurstOneAfterAnother(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("known %t", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &serialiser{}
				took, _ := burst(t, first, s.attach)
				alone := time.Duration(s.calls) * rpc
				t.Logf("%d calls: %v, one after another %v, %d at once at most", s.calls, took, alone, s.most)
				if s.most > 4 {
					t.Errorf("%d calls waited or were being answered at once, want 4 at most", s.most)
				}
				if took > alone+rpc {
					t.Errorf("it took %v, one call after another %v", took, alone)
				}
			})
		})
	}
}

// TestBurstSlowsDown: a runtime that begins to answer one call after another in
// the middle of a burst is soon asked by few.
func TestBurstSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &serialiser{after: 120}
		burst(t, true, s.attach)
		if s.most < 8 {
			t.Errorf("%d calls at once at most: there was nothing to slow down", s.most)
		}
		if s.later > 4 {
			t.Errorf("%d calls at once 200 calls after it had become slow, want 4 at most", s.later)
		}
	})
}

// serialiser answers one inspecting call after another, each in 5 ms; the first
// calls, if told so, side by side.
type serialiser struct {
	after int

	turn chan struct{} // not a mutex: time stands still in a bubble while one waits for that

	mu                      sync.Mutex
	calls, now, most, later int
}

func (s *serialiser) attach(rt *fakeruntime.Runtime) {
	s.turn = make(chan struct{}, 1)
	for _, op := range []string{"PodSandboxStatus", "ContainerStatus"} {
		rt.SetHook(op, func(context.Context, any) error {
			s.mu.Lock()
			s.calls++
			s.now++
			n := s.calls
			s.most = max(s.most, s.now)
			if n > s.after+200 {
				s.later = max(s.later, s.now)
			}
			s.mu.Unlock()
			if n > s.after {
				s.turn <- struct{}{}
				defer func() { <-s.turn }()
			}
			time.Sleep(rpc)
			s.mu.Lock()
			s.now--
			s.mu.Unlock()
			return nil
		})
	}
}
