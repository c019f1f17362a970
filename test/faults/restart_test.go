//go:build e2e

package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// TestRestart restarts the runtime in each fault in which a restart must help: lists are
// answered afterwards, and no container is lost.
func TestRestart(t *testing.T) {
	for i := range faults {
		f := faultNamed(t, faults[i].name)
		if !f.restart || f.leftOut(t) != "" {
			continue
		}
		t.Run(f.test(), func(t *testing.T) {
			b := newBench(t, f)
			before, err := b.cri.States(10 * time.Second)
			b.must(err)
			b.watch(f)
			w, injected := lab.NewWatch(t, b.plegd), time.Now()
			undo := f.make(b)
			if _, ok := w.Find(injected, 15*time.Second, func(s lab.Sight) bool { return s.Reason == f.want }); !ok {
				t.Errorf("never named %s: %s", f.want, lab.Story(w.Sights(injected), injected))
			}
			r := b.Restart()
			lost := lostContainers(b, before)
			undo()
			lab.Report(t, "%s: %s: restarted %+v, containers lost: %v", runtime.Column(), f.name, r, lost)
			if r.Listed < 0 || r.Listed > 30*time.Second || len(lost) > 0 {
				t.Errorf("first list %s after the restart, containers lost: %v", r.Listed, lost)
			}
			if _, err := w.Calm(time.Now(), 30*time.Second, calm); err != nil {
				t.Errorf("after the restart: %v: %s", err, lab.Story(w.Sights(injected), injected))
			}
		})
	}
}

// TestRestartWithStuckShim restarts the runtime while a stopped shim holds up the list.
// It must not be advised: the restart takes long or does not end, and the pod's
// containers are called EXITED.
func TestRestartWithStuckShim(t *testing.T) {
	needContainerd(t)
	b := newBench(t, &fault{})
	b.victim = b.pods[0].RunContainer("victim")
	before, err := b.cri.States(10 * time.Second)
	b.must(err)
	cont := b.stopShims(1)
	end := inBackground(func() { _ = b.victim.UpdateResources(t.Context()) })
	time.Sleep(2 * time.Second)
	r := b.Restart()
	lost := lostContainers(b, before)
	lab.Report(t, "%s: a stopped shim, restarted: %+v, containers lost: %v", runtime.Column(), r, lost)
	if !r.Killed && r.Listed >= 0 && r.Listed < 5*time.Second && len(lost) == 0 {
		t.Error("the restart did no harm: what the pages of ShimStuck and RuntimeListStall say of it is no longer true")
	}
	cont()
	end()
}

// lostContainers are the containers that ran before and do not run by the runtime's
// account.
func lostContainers(b *bench, before map[string]string) (lost []string) {
	b.t.Helper()
	after, err := b.cri.States(10 * time.Second)
	if err != nil {
		return []string{"no list: " + err.Error()}
	}
	for id, state := range before {
		if now := after[id]; state == "RUNNING" && now != state {
			lost = append(lost, fmt.Sprintf("%.8s %s", id, now))
		}
	}
	slices.Sort(lost)
	return lost
}
