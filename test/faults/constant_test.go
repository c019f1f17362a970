//go:build e2e

package faults

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	// constantFor is how long a constant fault lasts, settled from when on its
	// primary reason may change at most once.
	constantFor = time.Minute
	settled     = 10 * time.Second
)

// TestConstantFaults: a fault that does not change keeps its name.
func TestConstantFaults(t *testing.T) {
	for _, f := range constantFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &f)
			b.watch(&f)
			e := look(b.plegd)
			t.Cleanup(e.close)
			begun := time.Now()
			fix := f.inject(b)
			named, ok := e.await(begun, 2*f.goal, func(s sight) bool { return slices.Contains(f.names(), s.reason) })
			time.Sleep(constantFor - time.Since(begun))
			seen := e.since(begun)
			ended := time.Now()
			fix()
			back := e.awaitCalm(ended, 30*time.Second)
			t.Logf("named %s after %s, well %s after its end; %s", named.reason, named.at.Sub(begun), back, story(seen, begun))
			if !ok || named.at.Sub(begun) > f.goal {
				t.Errorf("not named %v within %s", f.names(), f.goal)
			}
			if n := primaryChanges(seen, begun.Add(settled)); n > 1 {
				t.Errorf("the primary reason changed %d times after the first %s", n, settled)
			}
			if back < 0 || back > f.back {
				t.Errorf("well after %s, want at most %s", back, f.back)
			}
		})
	}
}

// names are the reasons that the fault may have.
func (f *fault) names() []string { return append([]string{f.want}, f.onTheWay...) }

// primaryChanges is how often the primary reason changed after a moment.
func primaryChanges(sights []sight, from time.Time) (n int) {
	for i := 1; i < len(sights); i++ {
		if sights[i].at.After(from) && sights[i].reason != sights[i-1].reason {
			n++
		}
	}
	return n
}

var constantFaults = []fault{
	{
		name: "stopped for 700 ms of every second", want: health.RuntimeFrozen, goal: 5 * time.Second, back: 2 * time.Second,
		inject: func(b *bench) func() {
			pid := b.Pid()
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					_ = syscall.Kill(pid, syscall.SIGSTOP)
					time.Sleep(700 * time.Millisecond)
					_ = syscall.Kill(pid, syscall.SIGCONT)
					select {
					case <-stop:
						return
					case <-time.After(300 * time.Millisecond):
					}
				}
			}()
			return func() {
				close(stop)
				<-done
			}
		},
	},
	{
		name: "CPU quota", want: health.RuntimeThrottled, goal: 10 * time.Second, back: 5 * time.Second,
		prepare: func(b *bench) {
			lab.Two(300, func(int) { b.pods[0].CreateHeavyContainer(1000) })
			b.group = lab.NewControlGroup(b.t, "cpu", b.Pid())
		},
		inject: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
	},
	{
		name: "inspections of 1 s", want: health.RelistSlow, goal: 20 * time.Second, back: 30 * time.Second,
		simulate: []string{"--pods=120", "--churn=0.5"},
		inject: func(b *bench) func() {
			b.failpoints("PodSandboxStatus=delay(1s);ContainerStatus=delay(1s)")
			return func() { b.failpoints("") }
		},
	},
}
