//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// standing are warnings that stand for weeks beside any other fault.
var standing = []string{"shim stopped", "descriptors nearly used up", "a list of 14 MB"}

// critical are faults that each of them must not hide.
var critical = []string{
	"SIGSTOP", "cgroup frozen", "parent cgroup frozen", "traced and stopped by a debugger", "kill -9", "SIGTERM",
	"prlimit to 8 fds", "no CNI configuration", "a second runtime takes the socket", "symbolic link to another runtime's socket",
}

// TestPairs makes each of the critical faults beside each of the warnings: the critical
// reason is primary, and the warning again after it.
func TestPairs(t *testing.T) {
	for _, warning := range standing {
		for _, name := range critical {
			w, f := *faultNamed(t, warning), *faultNamed(t, name)
			if w.leftOut(t) != "" || f.leftOut(t) != "" {
				continue
			}
			if name == "SIGTERM" && warning == "descriptors nearly used up" {
				continue // its stop waits for the clients that use them
			}
			t.Run(f.test()+" beside "+w.test(), func(t *testing.T) {
				t.Parallel()
				pair := &fault{name: name + ", beside: " + warning, want: f.want, goal: f.goal}
				pair.tookNothing(t, len(faults))
				f.options.OpenFiles = max(f.options.OpenFiles, w.options.OpenFiles)
				b := newBench(t, &f)
				b.watch(&f)
				defer w.make(b)() // before the context of its calls ends
				b.awaitActive(w.want)
				pair.took(len(faults), b.beside(&f, &w))
			})
		}
	}
}

// beside makes a fault while a warning stands.
func (b *bench) beside(f, warning *fault) (r result) {
	watch := lab.NewWatch(b.t, b.plegd)
	b.injected = time.Now()
	undo := f.make(b)
	allowed := slices.Concat([]string{f.want, warning.want, ""}, f.onTheWay, warning.onTheWay)
	named, ok := watch.Find(b.injected, f.limit, func(s lab.Sight) bool { return s.Reason == f.want })
	time.Sleep(3 * time.Second)
	last := watch.Sights(b.injected)
	undo()
	_, over := watch.Find(time.Now(), 20*time.Second, func(s lab.Sight) bool { return s.Reason == warning.want || s.Reason == "" })
	r.named = named.At.Sub(b.injected)
	switch {
	case !ok:
		r.named, r.wrong = -1, "never named "+f.want
	case last[len(last)-1].Reason != f.want:
		r.wrong = "primary after 3 s: " + last[len(last)-1].Reason
	case f.unexpected(last, allowed) != "":
		r.wrong = "on the way: " + f.unexpected(last, allowed)
	case !over:
		r.wrong = "it stays after its end"
	}
	if r.wrong != "" {
		b.t.Errorf("%s: %s", r.wrong, lab.Story(watch.Sights(b.injected), b.injected))
	}
	return r
}

// harmless are no faults, although they look like one. Nothing is named for a while, but
// what the last field allows.
var harmless = []struct {
	name    string
	span    time.Duration
	make    func(*bench)
	allowed []string
}{
	{
		"another runtime with a stopped shim", 8 * time.Second,
		func(b *bench) {
			second := runtime.NewContainerd(b.t, runtime.ContainerdOptions{})
			pods := second.CRI(b.t).RunPods(1, 1)
			runtime.StopProcess(b.t, second.Shim(pods[0]))
		}, []string{health.NodePressure},
	},
	{
		// Its threads wait for the tracer, and not for a CPU.
		"strace on the runtime", 30 * time.Second,
		func(b *bench) {
			lab.StartCommand(b.t, exec.Command(lab.LookPath(b.t, "strace"), "-f", "-q", "-o", "/dev/null", "-p", fmt.Sprint(b.Pid())))
		}, []string{health.RelistSlow},
	},
	{
		"a pod whose program is not there", 15 * time.Second,
		func(b *bench) {
			start := b.startsIn("/run")
			for range 4 {
				if start("/no/such: no space left on device") == nil {
					b.t.Error("it could be started")
				}
			}
		}, nil,
	},
	{
		// /proc/pressure/cpu shows waits most of the time, and the CPUs are idle.
		"eight pods at CPU quotas of their own", 30 * time.Second,
		func(b *bench) {
			for range 8 {
				pid, _ := b.hog()
				lab.NewControlGroup(b.t, "cpu", pid).Quota(25 * time.Millisecond)
			}
		}, nil,
	},
	{
		// Its calls take seconds, and the runtime's answers none.
		"a CPU quota of plegd's own", 30 * time.Second,
		func(b *bench) { lab.NewControlGroup(b.t, "cpu", b.plegd.Pid()).Quota(8 * time.Millisecond) },
		[]string{health.NodePressure},
	},
	{
		"a daemon that a CNI plugin leaves", 60 * time.Second,
		func(b *bench) {
			b.copyProgram("sleep", b.file("cni", "left"))
			b.installPlugin(`setsid "$(dirname "$0")/left" 600 </dev/null >/dev/null 2>&1 &`)
			b.startPod()()
			b.t.Cleanup(func() { b.killAll(b.file("cni", "left")) })
		}, nil,
	},
	{
		"a container that is created and not started", 60 * time.Second,
		func(b *bench) { b.pods[0].CreateContainer("waits") }, nil,
	},
	{
		"one pod that cannot be started, and a container that ends again and again", 90 * time.Second,
		func(b *bench) {
			wait := inBackground(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				pod, _ := b.cri.TryPodInNetwork(ctx) // its network cannot be made
				for n := range 7 {                   // as often as the kubelet tries it
					_ = pod.Run(ctx)
					if n < 2 {
						b.pods[0].RunContainer("ends", "--after=1s", "--exit-code=1")
					}
					time.Sleep(12 * time.Second)
				}
			})
			b.t.Cleanup(wait)
		}, nil,
	},
	{
		"pods that come and go", 30 * time.Second,
		func(b *bench) { b.cri.AtOnce(2, 60, func(int) { b.cri.RunPod().Discard() }) }, []string{health.NodePressure},
	},
	{
		// It reads nothing of what the runtime sends it, and the runtime does not wait for it.
		"a stopped client of the runtime's events", 45 * time.Second,
		func(b *bench) {
			client := exec.Command(lab.LookPath(b.t, "ctr"), "--address", b.socket, "events")
			lab.StartCommand(b.t, client)
			time.Sleep(time.Second) // it has subscribed
			runtime.StopProcess(b.t, client.Process.Pid)
			b.cri.AtOnce(2, 60, func(int) { b.cri.RunPod().Discard() })
		}, []string{health.NodePressure},
	},
	{
		"a container whose process is called runc", 45 * time.Second,
		func(b *bench) { b.pods[0].RunContainer("runc", "--name=runc") }, nil,
	},
}

// TestHarmless: nothing is named where nothing is wrong.
func TestHarmless(t *testing.T) {
	needContainerd(t)
	for _, c := range harmless {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &fault{configure: namespacesInMemory})
			b.watch(&fault{})
			w, from := lab.NewWatch(t, b.plegd), time.Now()
			c.make(b)
			time.Sleep(c.span)
			for _, s := range w.Sights(from) {
				if s.Reason != "" && !slices.Contains(c.allowed, s.Reason) {
					t.Fatalf("%s: %s: %s", s.Reason, s.Evidence(), lab.Story(w.Sights(from), from))
				}
			}
		})
	}
}

// faultNamed returns a row of the table.
func faultNamed(t *testing.T, name string) *fault {
	t.Helper()
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no fault %q", name)
	}
	f := faults[i]
	f.complete()
	return &f
}
