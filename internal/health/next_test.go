package health

import (
	"strings"
	"testing"
	"time"
)

// TestFirstStep has pairs: the step for a culprit, and for a similar process that is
// none.
func TestFirstStep(t *testing.T) {
	call := Link{Kind: KindCall, Name: "list_containers", State: LinkUnanswered}
	shim := Link{Kind: KindShim, Name: "containerd-shim", PID: 20, State: LinkChild}
	plugin := Link{Kind: KindHelper, Name: "bridge", PID: 30, State: LinkChild, Evidence: "waits for its child"}
	child := Link{Kind: KindHelper, Name: "sleep", PID: 31, State: LinkAsleep, Evidence: "1 thread asleep"}
	peer := func(l Link) Link { l.State = LinkPeer; return l }
	with := func(l Link, s LinkState) Link { l.State = s; return l }
	daemon := Link{Kind: KindProcess, Name: "cni-daemon", PID: 40, State: LinkAsleep, Evidence: "2 threads asleep"}
	for name, tt := range map[string]struct {
		links     []Link
		want, not string
	}{
		"a helper's child has the pipe":       {[]Link{call, shim, plugin, child}, "`kill 31`", "kill 30"},
		"a helper alone":                      {[]Link{call, shim, with(plugin, LinkAsleep)}, "`kill 30`", ""},
		"a helper waits for a daemon":         {[]Link{call, shim, peer(plugin), daemon}, "Get pid 40 (cni-daemon)", "kill"},
		"a daemon that is stopped":            {[]Link{call, shim, peer(plugin), with(daemon, LinkStopped)}, "kill -CONT 40", ""},
		"a shim that reads nothing":           {[]Link{call, with(shim, LinkUnread)}, "kill -9 20", ""},
		"a shim that the chain calls idle":    {[]Link{call, with(shim, LinkAsleep)}, "", "kill"},
		"a shim that runs":                    {[]Link{call, with(shim, LinkRunning)}, "", "kill"},
		"a shim that is traced":               {[]Link{call, with(shim, LinkTraced), {Kind: KindProcess, Name: "gdb", PID: 50, State: LinkAsleep}}, "pid 50 (gdb) traces pid 20", "kill -CONT 20"},
		"a tracer that is stopped":            {[]Link{call, with(shim, LinkTraced), {Kind: KindProcess, Name: "gdb", PID: 50, State: LinkStopped}}, "kill -CONT 50", "kill -CONT 20"},
		"a FUSE server that waits, idle":      {[]Link{call, with(shim, LinkBlocked), {Kind: KindMount, Name: "/v"}, daemon}, "Get pid 40 (cni-daemon), which serves the mount /v", ""},
		"a fanotify agent that is stopped":    {[]Link{call, peer(shim), with(daemon, LinkStopped)}, "kill -CONT 40", ""},
		"a disk":                              {[]Link{call, with(shim, LinkBlocked), {Kind: KindMount, Name: "/v", State: LinkBlocked, Evidence: "ext4"}}, "Look at the mount /v: ext4", ""},
		"a cgroup above":                      {[]Link{call, with(shim, LinkFrozen), {Kind: KindCgroup, Name: "/kubepods", State: LinkFrozen}}, "Thaw the cgroup /kubepods", ""},
		"a log pipe of which nobody is known": {[]Link{call, {Kind: KindRuntime, Name: "containerd", PID: 1, State: LinkPeer}}, "", "kill"},
	} {
		c := &Chain{Links: tt.links}
		got := firstStep(c, c.Culprit())
		if !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q and not %q", name, got, tt.want, tt.not)
		}
	}
}

// TestOtherPodsShim: the shim of another pod is not why an inspection hangs.
func TestOtherPodsShim(t *testing.T) {
	for uid, want := range map[string]string{"u": ShimStuck, "": ShimStuck, "another": PodInspectionStall} {
		f := healthyFacts(t0)
		at := t0.Add(-6 * time.Second)
		f.Relist.InFlight = &InFlight{Start: at, Phase: PhaseInspect, PhaseStart: at, Pods: 1}
		f.Relist.Inspecting = []PodInspection{
			{UID: "u", Start: at, Operation: "container_status"},
			{UID: "another", Start: t0.Add(-10 * time.Millisecond), Operation: "container_status"},
		}
		f.Evidence.Children = &Children{Shims: 5, Stuck: []Child{{PID: 4711, Comm: "containerd-shim", State: "T", Since: at, Sandbox: "s", PodUID: uid}}}
		if v := Judge(&f, t0, nil); v.Reason != want || v.active(ShimStuck) == nil || want == ShimStuck && v.Symptom != PodInspectionStall {
			t.Errorf("shim of pod %q: %s, want %s: %v", uid, v.Reason, want, v.Active)
		}
	}
}

// TestStacksOnlyOfRuntimes: SIGUSR1 ends a program that does not handle it, and cri-dockerd
// writes no stacks, which dockerd does.
func TestStacksOnlyOfRuntimes(t *testing.T) {
	for comm, want := range map[string]bool{"containerd": true, "crio": true, "haproxy": false} {
		f := hangingList()
		f.Evidence.Process = &Process{At: t0, PID: 812, Comm: comm, Alive: true}
		v := Judge(&f, t0, nil)
		if v.Reason != RuntimeListStall {
			t.Fatalf("%s: %s", comm, v.Reason)
		}
		if got := strings.Contains(strings.Join(v.Steps, " "), "kill -USR1"); got != want {
			t.Errorf("%s: %q", comm, v.Steps)
		}
	}
	f := behindDocker(t0)
	if got := f.nodeSteps(nil).Replace("kill -USR1 {stacks}"); got != "kill -USR1 812" {
		t.Error(got)
	}
}

// TestRuntimeWaitsForReader: a list hangs, and the runtime waits for a process that
// does not read the runtime's output.
func TestRuntimeWaitsForReader(t *testing.T) {
	f := hangingList()
	f.Evidence.Chain = chainOf(
		Link{Kind: KindRuntime, Name: "containerd", PID: 812, State: LinkPeer, Evidence: "thread 813 writes to pipe:[1]"},
		Link{Kind: KindProcess, Name: "logger", PID: 900, State: LinkStopped, Evidence: "stopped"})
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeThreadStuck || v.Symptom != RuntimeListStall || !contains(v.Next, "kill -CONT 900") || v.Active[0].Severity != SeverityCritical {
		t.Errorf("%s behind %q, %q: %v", v.Reason, v.Symptom, v.Next, v.Active)
	}
}
