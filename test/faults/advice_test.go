//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// advice is a fault in which the runtime is restarted, and what must come of it.
type advice struct {
	name string
	// reason is what plegd says; the row's advice about a restart is tried.
	reason  string
	options lab.ContainerdOptions
	// inject makes the fault; what it returns ends what the restart does not.
	inject func(*bench) (end func())
	// on is the runtime that the fault can be made on, as in fault; "" for all.
	on string
}

// advices are the faults whose reason says that a restart helps, or may, and the
// one in which it must not be advised.
var advices = []advice{
	{
		name: "400 idle connections, 256 fds", reason: health.AcceptFDExhausted, options: lab.ContainerdOptions{OpenFiles: 256},
		inject: func(b *bench) func() {
			open := b.connect(400)
			return func() { closeAll(open) }
		},
	},
	{
		name: "accept queue filled", reason: health.AcceptFDExhausted,
		inject: func(b *bench) func() {
			b.LimitFiles(8)
			open := b.connect(10000)
			return func() { closeAll(open) }
		},
	},
	{
		name: "socket unlinked", reason: health.RuntimeSocketUnlinked,
		inject: func(b *bench) func() {
			b.must(os.Remove(b.socket))
			return func() {}
		},
	},
	{
		name: "descriptors nearly used up", reason: health.FDsRunningOut, options: lab.ContainerdOptions{OpenFiles: 256},
		inject: func(b *bench) func() {
			open := b.connect(150)
			return func() { closeAll(open) }
		},
	},
	{
		name: "runc update hangs", reason: health.RuntimeListStall, options: lab.ContainerdOptions{RuncHangsOn: "update"}, on: "containerd",
		inject: func(b *bench) func() {
			b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
			ctx, cancel := context.WithCancel(b.t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = b.victim.UpdateResources(ctx)
			}()
			return func() {
				b.must(os.Remove(b.RuncFlag()))
				cancel()
				<-done
			}
		},
	},
	{
		name: "SIGSTOP", reason: health.RuntimeFrozen,
		inject: func(b *bench) func() {
			b.Freeze()
			return func() {}
		},
	},
}

// TestAdvice restarts the runtime in each of these faults, and looks whether its
// lists and its pods are well afterwards: what the reason's page says of a restart
// is what this test has seen.
func TestAdvice(t *testing.T) {
	if lab.StandInsOnly() {
		t.Skip("SKIPPED: it needs a real runtime")
	}
	for _, a := range advices {
		if !strings.HasPrefix(lab.RuntimeColumn(), a.on) {
			continue
		}
		t.Run(strings.ReplaceAll(a.name, ",", ""), func(t *testing.T) {
			b := newBench(t, &fault{options: a.options})
			b.victim = b.pods[0].RunContainer("victim")
			before, err := b.cri.States(10 * time.Second)
			b.must(err)
			b.watch(&fault{})
			injected := time.Now()
			e := look(b.plegd)
			defer e.close()
			end := a.inject(b)
			if _, ok := e.await(injected, 15*time.Second, func(s sight) bool { return s.reason == a.reason }); !ok {
				t.Errorf("never named %s: %s", a.reason, story(e.since(injected), injected))
			}
			r := b.Restart()
			lost := lostContainers(b, before)
			end()
			reportRestart(t, a.name, r, lost)
			if r.Listed < 0 || r.Listed > 30*time.Second {
				t.Errorf("no list within %s of the restart", r.Listed)
			}
			if len(lost) > 0 {
				t.Errorf("containers lost by the restart: %v", lost)
			}
			if e.awaitCalm(time.Now(), 30*time.Second) < 0 {
				t.Errorf("not healthy after the restart: %s", story(e.since(injected), injected))
			}
		})
	}
}

// TestRestartWithStuckShim restarts the runtime while a stopped shim holds up
// ListContainers, as in containerd issue 9770. It must not be advised: the restart
// takes long or does not end, and the pod's containers are called EXITED. To
// continue the shim is enough.
func TestRestartWithStuckShim(t *testing.T) {
	if !strings.HasPrefix(lab.RuntimeColumn(), "containerd") || lab.StandInsOnly() {
		t.Skip("SKIPPED: only containerd has shims")
	}
	b := newBench(t, &fault{})
	b.victim = b.pods[0].RunContainer("victim")
	before, err := b.cri.States(10 * time.Second)
	b.must(err)
	cont := b.stopShims(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.victim.UpdateResources(ctx)
	}()
	hung := false
	for began := time.Now(); !hung && time.Since(began) < 5*time.Second; {
		_, err := b.cri.States(time.Second)
		hung = err != nil
	}
	t.Logf("the list hangs: %t", hung)
	r := b.Restart()
	lost := lostContainers(b, before)
	reportRestart(t, "ListContainers hangs behind a stopped shim", r, lost)
	if !r.Killed && r.Listed >= 0 && r.Listed < 5*time.Second && len(lost) == 0 {
		t.Error("the restart did no harm: what the pages of ShimStuck and RuntimeListStall say of it is no longer true")
	}
	cont()
	cancel()
	<-done
}

// lostContainers are the containers that ran before and that the runtime no longer
// says to run, with what it says.
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

func reportRestart(t *testing.T, name string, r lab.Restarted, lost []string) {
	ended := "ended on SIGTERM"
	if r.Killed {
		ended = "did not end on SIGTERM within 20 s"
	}
	lab.Report(t, "%s: restart in %q: %s, first list after %.1f s, containers lost: %d %v", lab.RuntimeColumn(), name, ended, r.Listed.Seconds(), len(lost), lost)
}
