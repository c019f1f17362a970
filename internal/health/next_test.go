package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestFirstStep has pairs: the step for a culprit, and for a similar process that is
// none.
func TestFirstStep(t *testing.T) {
	call := facts.Link{Kind: facts.KindCall, Name: "list_containers", State: facts.LinkUnanswered}
	shim := facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 20, State: facts.LinkChild}
	plugin := facts.Link{Kind: facts.KindHelper, Name: "bridge", PID: 30, State: facts.LinkChild, Evidence: "waits for its child"}
	child := facts.Link{Kind: facts.KindHelper, Name: "sleep", PID: 31, State: facts.LinkAsleep, Evidence: "1 thread asleep"}
	peer := func(l facts.Link) facts.Link { l.State = facts.LinkPeer; return l }
	with := func(l facts.Link, s facts.LinkState) facts.Link { l.State = s; return l }
	daemon := facts.Link{Kind: facts.KindProcess, Name: "cni-daemon", PID: 40, State: facts.LinkAsleep, Evidence: "2 threads asleep"}
	for name, tt := range map[string]struct {
		links     []facts.Link
		want, not string
	}{
		"a helper's child has the pipe":       {[]facts.Link{call, shim, plugin, child}, "`kill 31`", "kill 30"},
		"a helper alone":                      {[]facts.Link{call, shim, with(plugin, facts.LinkAsleep)}, "`kill 30`", ""},
		"a helper waits for the kernel":       {[]facts.Link{call, shim, {Kind: facts.KindHelper, Name: "ip", PID: 31, State: facts.LinkAsleep, Evidence: "it waits for a message of the kernel, which has not come"}}, "See which event pid 31 (ip) waits for, and why that does not come: it waits for a message of the kernel", "restart"},
		"a helper waits for a daemon":         {[]facts.Link{call, shim, peer(plugin), daemon}, "Get pid 40 (cni-daemon)", "kill"},
		"a client that leaks connections":     {[]facts.Link{{Kind: facts.KindRuntime, Name: "containerd", PID: 10, State: facts.LinkPeer, Evidence: "60 of its 64 descriptors are connections of pid 40"}, daemon}, "See why pid 40 (cni-daemon) keeps", "kill"},
		"a daemon that keeps a pipe open":     {[]facts.Link{{Kind: facts.KindRuntime, Name: "containerd", PID: 10, State: facts.LinkPeer, Evidence: "reads from pipe:[7], which pid 40 keeps open"}, daemon}, "See what pid 40 (cni-daemon) is", "kill"},
		"a daemon that is stopped":            {[]facts.Link{call, shim, peer(plugin), with(daemon, facts.LinkStopped)}, "kill -CONT 40", ""},
		"a conmon that has ended":             {[]facts.Link{{Kind: facts.KindShim, Name: "conmon", State: facts.LinkEnded, Evidence: "pid 9 has ended"}}, "Delete the pod of this conmon", "kill"},
		"an ended process":                    {[]facts.Link{call, {Kind: facts.KindProcess, Name: "app", PID: 9, State: facts.LinkEnded}}, "", "Delete"},
		"a FIFO without another end":          {[]facts.Link{{Kind: facts.KindRuntime, Name: "crio", PID: 10, State: facts.LinkPeer, Evidence: "thread 11 opens a FIFO to read, which no process has opened to write to it"}}, "FIFO that pid 10 (crio) waits for", "kill"},
		"a conmon that opens a FIFO":          {[]facts.Link{call, {Kind: facts.KindShim, Name: "conmon", PID: 20, State: facts.LinkPeer, Evidence: "thread 20 opens a FIFO to write, which no process has opened to read from it"}}, "FIFO that pid 20 (conmon) waits for", "kill"},
		"an automounter that waits, idle":     {[]facts.Link{call, with(shim, facts.LinkBlocked), {Kind: facts.KindMount, Name: "/home", Fingerprint: "autofs"}, daemon}, "Get pid 40 (cni-daemon), which serves the mount /home", "releases"},
		"a shim that reads nothing":           {[]facts.Link{call, with(shim, facts.LinkUnread)}, "kill -9 20", ""},
		"a conmon that reads nothing":         {[]facts.Link{call, {Kind: facts.KindShim, Name: "conmon", PID: 20, State: facts.LinkUnread}}, "", "kill"},
		"a shim that the chain calls idle":    {[]facts.Link{call, with(shim, facts.LinkAsleep)}, "", "kill"},
		"a shim that runs":                    {[]facts.Link{call, with(shim, facts.LinkRunning)}, "", "kill"},
		"a shim that is traced":               {[]facts.Link{call, with(shim, facts.LinkTraced), {Kind: facts.KindProcess, Name: "gdb", PID: 50, State: facts.LinkAsleep}}, "pid 50 (gdb) traces pid 20", "kill -CONT 20"},
		"a tracer that is stopped":            {[]facts.Link{call, with(shim, facts.LinkTraced), {Kind: facts.KindProcess, Name: "gdb", PID: 50, State: facts.LinkStopped}}, "kill -CONT 50", "kill -CONT 20"},
		"a FUSE server that waits, idle":      {[]facts.Link{call, with(shim, facts.LinkBlocked), {Kind: facts.KindMount, Name: "/v"}, daemon}, "Get pid 40 (cni-daemon), which serves the mount /v", ""},
		"a fanotify agent that is stopped":    {[]facts.Link{call, peer(shim), with(daemon, facts.LinkStopped)}, "kill -CONT 40", ""},
		"a disk":                              {[]facts.Link{call, with(shim, facts.LinkBlocked), {Kind: facts.KindMount, Name: "/v", State: facts.LinkBlocked, Evidence: "ext4"}}, "Look at the mount /v: ext4", ""},
		"a mount where a path is removed":     {[]facts.Link{with(shim, facts.LinkBusy), {Kind: facts.KindMount, Name: "/run/netns/x", State: facts.LinkBusy, Evidence: "ext4"}}, "`umount /run/netns/x`", ""},
		"a process that uses such a path":     {[]facts.Link{with(shim, facts.LinkBusy), with(daemon, facts.LinkBusy)}, "See what pid 40 (cni-daemon) does there", "kill"},
		"a server elsewhere":                  {[]facts.Link{{Kind: facts.KindRuntime, Name: "containerd", PID: 10, State: facts.LinkUnanswered}, {Kind: facts.KindNode, Name: "10.0.0.1:443", State: facts.LinkUnanswered}}, "the server at 10.0.0.1:443", "kill"},
		"a cgroup above":                      {[]facts.Link{call, with(shim, facts.LinkFrozen), {Kind: facts.KindCgroup, Name: "/kubepods", State: facts.LinkFrozen}}, "`echo 0 >/sys/fs/cgroup/kubepods/cgroup.freeze`", ""},
		"a cgroup that is at its limit":       {[]facts.Link{with(shim, facts.LinkFailing), {Kind: facts.KindCgroup, Name: "/kubepods", State: facts.LinkFailing, Evidence: "pids.max is 9"}}, "Raise the limit of the cgroup /kubepods: pids.max is 9", "kill"},
		"a full mount":                        {[]facts.Link{with(shim, facts.LinkFailing), {Kind: facts.KindMount, Name: "/v", State: facts.LinkFailing, Evidence: "/v: 0 of 9 inodes free"}}, "Make /v writable again (/v: 0 of 9 inodes free): free space or inodes", "kill"},
		"a mount without its server":          {[]facts.Link{{Kind: facts.KindMount, Name: "/v", State: facts.LinkEnded, Evidence: "fuse on v"}}, "`umount /v`, and mount it again", "kill"},
		"a program that is gone":              {[]facts.Link{with(shim, facts.LinkFailing), {Kind: facts.KindFile, Name: "/bin/runc", State: facts.LinkFailing, Evidence: "/bin/runc is not there"}}, "Put the program back, as by installing its package again: /bin/runc is not there. No restart", "kill"},
		"a daemon that does not reap":         {[]facts.Link{{Kind: facts.KindRuntime, Name: "containerd", PID: 10, State: facts.LinkFailing, Evidence: "pids.max of /x is 100"}, {Kind: facts.KindProcess, Name: "ipam", PID: 40, State: facts.LinkFailing, Evidence: "80 of them are children that it does not reap"}}, "Restart the service of pid 40 (ipam), not the runtime: pids.max of /x is 100, 80 of them", "kill"},
		"a limit that children inherit":       {[]facts.Link{{Kind: facts.KindRuntime, Name: "containerd", PID: 10, State: facts.LinkFailing, Evidence: "starts failed; its limit of the stack size is 8 KiB (LimitSTACK)"}}, "Raise the limit of pid 10 (containerd), with `prlimit --pid 10` at once and in its unit for later: the stack size is 8 KiB", "kill"},
		"a log pipe of which nobody is known": {[]facts.Link{call, {Kind: facts.KindRuntime, Name: "containerd", PID: 1, State: facts.LinkPeer}}, "", "kill"},
	} {
		c := &facts.Chain{Links: tt.links}
		got := firstStep(c, c.Culprit())
		if !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q and not %q", name, got, tt.want, tt.not)
		}
	}
	for end, want := range map[*facts.Link]bool{&plugin: true, &shim: false} {
		c := &facts.Chain{Links: []facts.Link{call, with(*end, facts.LinkUnknown)}, Unknown: "the descriptors are denied"}
		got := firstStep(c, c.Culprit())
		if !strings.Contains(got, "the descriptors are denied") || strings.Contains(got, "kill 30") != want {
			t.Errorf("a %s whose wait cannot be read: %q", end.Kind, got)
		}
	}
}

// TestOtherPodsShim: the shim of another pod is not why an inspection hangs.
func TestOtherPodsShim(t *testing.T) {
	for uid, want := range map[string]string{"u": ShimStuck, "": ShimStuck, "another": PodInspectionStall} {
		f := healthyFacts(t0)
		at := t0.Add(-6 * time.Second)
		f.Relist.InFlight = &facts.InFlight{Start: at, Phase: facts.PhaseInspect, PhaseStart: at, Pods: 1}
		f.Relist.Inspecting = []facts.PodInspection{
			{UID: "u", Start: at, Operation: "container_status"},
			{UID: "another", Start: t0.Add(-10 * time.Millisecond), Operation: "container_status"},
		}
		f.Evidence.Children = &facts.Children{Shims: 5, Stuck: []facts.Child{{PID: 4711, Comm: "containerd-shim", State: "T", Since: at, Sandbox: "s", PodUID: uid}}}
		if v := Judge(&f, t0, nil); v.Reason != want || v.ActiveReason(ShimStuck) == nil || want == ShimStuck && v.Symptom != PodInspectionStall {
			t.Errorf("shim of pod %q: %s, want %s: %v", uid, v.Reason, want, v.Active)
		}
	}
}

// TestStacksOnlyOfRuntimes: SIGUSR1 ends a program that does not handle it. A name proves no runtime,
// and cri-dockerd writes no stacks, which dockerd does.
func TestStacksOnlyOfRuntimes(t *testing.T) {
	for comm, program := range map[string]string{"containerd": "containerd", "crio-renamed": "crio", "haproxy": "", "an impostor's containerd": ""} {
		f := hangingList()
		f.Evidence.Process = &facts.Process{At: t0, PID: 812, Comm: comm, Program: program, Alive: true}
		v := Judge(&f, t0, nil)
		must.Equal(t, v.Reason, RuntimeListStall, "%s", comm)
		check.Equal(t, strings.Contains(strings.Join(v.Steps, " "), "kill -USR1"), program != "", "%s: %q", comm, v.Steps)
	}
	f := behindDocker(t0)
	if got, _ := nodeWords(&f, "", nil).fill("kill -USR1 {stacks}"); got != "kill -USR1 812" {
		t.Error(got)
	}
}

// TestRuntimeWaitsForReader: a list hangs, and the runtime waits for a process that
// does not read the runtime's output.
func TestRuntimeWaitsForReader(t *testing.T) {
	f := hangingList()
	f.Evidence.Chain = chainOf(
		facts.Link{Kind: facts.KindRuntime, Name: "containerd", PID: 812, State: facts.LinkPeer, Evidence: "thread 813 writes to pipe:[1]"},
		facts.Link{Kind: facts.KindProcess, Name: "logger", PID: 900, State: facts.LinkStopped, Evidence: "stopped"})
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeThreadStuck || v.Symptom != RuntimeListStall || !contains(v.Next, "kill -CONT 900") || v.Active[0].Severity != facts.SeverityCritical {
		t.Errorf("%s behind %q, %q: %v", v.Reason, v.Symptom, v.Next, v.Active)
	}
	f.Calls = map[string]facts.Call{"version": {LastOK: ago(8 * time.Second), InFlightSince: ago(7 * time.Second)}}
	f.Version = facts.VersionCheck{HangsSince: ago(7 * time.Second)}
	f.Evidence.Chain.Links[0].Name = facts.EveryCall
	if v := Judge(&f, t0, nil); v.Reason != RuntimeThreadStuck || v.Symptom != RuntimeUnresponsive || !contains(v.Next, "kill -CONT 900") {
		t.Errorf("every call: %s behind %q, %q", v.Reason, v.Symptom, v.Next)
	}
	f.Evidence.Hops = []facts.Hop{{Socket: "/run/docker.sock", Process: &facts.Process{At: t0, PID: 900, Alive: true}}}
	if v := Judge(&f, t0, nil); v.Reason == RuntimeThreadStuck {
		t.Error("a hop behind the runtime has reasons of its own")
	}
}

// TestNextWithoutMessage: where the node has no message of the runtime, the step names a command that shows the cause.
func TestNextWithoutMessage(t *testing.T) {
	for reason, tt := range map[string]struct {
		change func(*facts.Facts)
		want   string
	}{
		RuntimeNotReady: {func(f *facts.Facts) {
			f.Status.InFlightSince = ago(3 * time.Second)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: ago(time.Second), LastOKDuration: time.Millisecond}}
		}, "plegd stacks"},
		RuntimeStorageFull: {func(f *facts.Facts) {
			f.Evidence.Storage = &facts.Storage{FileSystems: []facts.FileSystem{{Directory: "/data", Use: "root", Lost: true}}}
		}, "findmnt -T /data"},
		CRIPluginNotLoaded: {func(f *facts.Facts) {
			f.Relist.Failures = 1
			f.Relist.Last.Err = &facts.CallError{Code: "Unimplemented", Message: "unknown service runtime.v1.RuntimeService"}
			f.Runtime.Name = "containerd"
		}, "ctr plugins ls -d"},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		v := Judge(&f, t0, nil)
		if v.Reason != reason || !contains(v.Next, tt.want) {
			t.Errorf("%s, want %s with %q: %q", v.Reason, reason, tt.want, v.Next)
		}
	}
}

// TestRestartNext: a loop of starts has the step of what the node shows to end them.
func TestRestartNext(t *testing.T) {
	for want, change := range map[string]func(*facts.Evidence){
		"log": func(*facts.Evidence) {},
		"Free space": func(e *facts.Evidence) {
			e.Storage = &facts.Storage{At: t0, FileSystems: []facts.FileSystem{{Directory: "/root", Use: "root", ReadOnly: true}}}
		},
		"memory limit": func(e *facts.Evidence) {
			e.Cgroup = &facts.Cgroup{At: t0, MemoryLimits: []facts.MemoryLimit{{Path: "/a", Max: 1, OOMKills: 3}}}
		},
	} {
		f := healthyFacts(t0)
		starts := []time.Time{ago(20 * time.Second), ago(12 * time.Second), ago(4 * time.Second)}
		f.Evidence.Process = &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Start: starts[2], Restarts: starts}
		change(&f.Evidence)
		v := Judge(&f, t0, nil)
		next := ""
		if v.Reason == RuntimeRestarting {
			next = v.Next
		}
		if !contains(next, want) {
			t.Errorf("%s: %s, %q", want, listed(v), v.Next)
		}
	}
}

// TestNextOfCall: the step of a reason that the chain of a call does not prove is the chain's where it explains it.
func TestNextOfCall(t *testing.T) {
	call := facts.Link{Kind: facts.KindCall, Name: "list_podsandbox", State: facts.LinkUnanswered}
	blocked := facts.Link{Kind: facts.KindRuntime, Name: "cri-dockerd", PID: 7, State: facts.LinkBlocked}
	idle := facts.Link{Kind: facts.KindRuntime, Name: "containerd", PID: 7, State: facts.LinkPeer}
	kernel := facts.Link{Kind: facts.KindKernel, Name: "percpu_rwsem_wait", State: facts.LinkBlocked, Evidence: "as below a file system that is frozen"}
	mount := facts.Link{Kind: facts.KindMount, Name: "/volume", State: facts.LinkFrozen}
	for _, tt := range []struct {
		name, id string
		links    []facts.Link
		want     string
	}{
		{"its thread waits in the kernel", RuntimeStorageStall, []facts.Link{call, blocked, kernel}, "frozen"},
		{"its thread waits for a mount", RuntimeStorageStall, []facts.Link{call, blocked, mount}, "fsfreeze -u /volume"},
		{"another process does", RuntimeStorageStall, []facts.Link{call, idle, mount}, ""},
		{"the symptom of a call that leads to a mount", RuntimeListStall, []facts.Link{call, idle, mount}, "fsfreeze -u /volume"},
		{"and to none", RuntimeListStall, []facts.Link{call, blocked, kernel}, ""},
	} {
		s := newSignals(&facts.Facts{}, t0, nil)
		got := s.chainNext(tt.id, &facts.Chain{Links: tt.links})
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
