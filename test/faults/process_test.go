//go:build e2e

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// processFaults keep the runtime's process from running.
var processFaults = []fault{
	{
		name: "SIGSTOP", want: health.RuntimeFrozen, goal: 3 * time.Second, restart: true,
		make: func(b *bench) func() { return stopProcess(b, b.Pid()) },
		steps: []pasted{
			{holds: "grep -e State", want: "T (stopped)"},
			{holds: "kill -CONT", repairs: true},
		},
	},
	{
		name: "cgroup frozen", want: health.RuntimeFrozen, goal: 3 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "freezer", b.Pid()) },
		make:    func(b *bench) func() { return freezeGroup(b.group) },
		steps:   []pasted{{holds: "echo THAWED", repairs: true}},
	},
	{
		// To thaw the cgroup of the process does nothing.
		name: "parent cgroup frozen", want: health.RuntimeFrozen, goal: 3 * time.Second,
		prepare:  func(b *bench) { b.group = lab.NewControlGroup(b.t, "freezer", b.Pid()).Above() },
		make:     func(b *bench) func() { return freezeGroup(b.group) },
		culprit:  func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: b.group.Path()} },
		evidence: func(b *bench) string { return b.group.Path() },
		steps:    []pasted{{holds: "echo THAWED", repairs: true}},
	},
	{
		// To continue it does nothing: its tracer has it.
		name: "traced and stopped by a debugger", want: health.RuntimeFrozen, goal: 3 * time.Second,
		make:    func(b *bench) func() { return b.helper("trace", fmt.Sprint(b.Pid())) },
		culprit: theOther, next: pidOfOther,
	},
	{
		name: "the thread that reads from connections is traced and stopped", want: health.RuntimeFrozen, goal: 5 * time.Second, limit: 20 * time.Second,
		make:    func(b *bench) func() { return b.helper("tracepollers", fmt.Sprint(b.Pid())) },
		culprit: theOther, next: pidOfOther,
		onTheWay: []string{health.RuntimeUnresponsive},
	},
	{
		name: "CPU quota of 2 ms a second", want: health.RuntimeThrottled, goal: 3 * time.Second, limit: 10 * time.Second,
		prepare: func(b *bench) { b.heavyList("cpu") }, onTheWayBack: []string{health.RelistSlow}, hold: 10 * time.Second,
		make: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
	},
	{
		name: "CPU quota of the parent cgroup", want: health.RuntimeThrottled, goal: 3 * time.Second, limit: 10 * time.Second,
		onTheWayBack: []string{health.RelistSlow}, hold: 10 * time.Second,
		prepare: func(b *bench) {
			b.heavyList("cpu")
			b.group = b.group.Above()
		},
		make: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
		evidence: func(b *bench) string { return "by the quota of the cgroup " + b.group.Path() },
	},
	{
		name: "CPU shares of 2 beside hogs", want: health.RuntimeStarved, goal: 5 * time.Second, limit: 30 * time.Second,
		incident: "10 CPU weight of the runtime's cgroup",
		prepare:  func(b *bench) { b.heavyList("cpu") },
		// Until the first wait has been seen.
		onTheWay:     []string{health.NodePressure, health.RelistSlow, health.RuntimeUnresponsive, health.RuntimeListStall},
		onTheWayBack: []string{health.RelistSlow, health.AcceptStalled}, back: 20 * time.Second,
		make: func(b *bench) func() {
			b.group.Shares(2)
			var ends []func()
			for range 4 * goruntime.NumCPU() {
				_, end := b.hog()
				ends = append(ends, end)
			}
			return inTurn(append(ends, func() { b.group.Shares(0) })...)
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindRuntime, PID: b.Pid()} },
		next:    func(*bench) string { return "Reserve CPU" },
		steps:   []pasted{{holds: "ps -eLo cls", want: " sh"}},
	},
	{
		name: "memory limit, out of memory", fresh: true, on: []string{"containerd 1.", "CRI-O"},
		incident: "9 memory limit of the runtime's cgroup", want: health.RuntimeMemoryLimited, goal: 5 * time.Second, limit: 20 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "memory", b.Pid()) },
		// Until the limit is reached; its server may end by an accept(2) that fails.
		onTheWay:     []string{health.RuntimeUnresponsive, health.AcceptStalled, health.RuntimeSocketUnlinked, health.RuntimeSocketMissing},
		onTheWayBack: append([]string{health.RelistSlow}, starting...), back: 30 * time.Second, hold: time.Second,
		make: func(b *bench) func() {
			lift := b.group.LimitMemory(1 << 20)
			end := b.connect(1000) // each costs the runtime some kilobytes
			return inTurn(lift, end, b.restartIfGone)
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: b.group.Path()} },
		next:    func(*bench) string { return "aise the" },
	},
	killedForMemory((*bench).Pid, fault{name: "the kernel kills a process of the runtime's cgroup"}),
	{
		name: "the kernel kills the runtime for memory", fresh: true, restarts: true, want: health.RuntimeNotListening,
		goal: 5 * time.Second, onTheWay: []string{health.RuntimeMemoryLimited}, onTheWayBack: starting, back: 75 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "memory", b.Pid()) },
		make: func(b *bench) func() {
			dead := fmt.Sprintf("/proc/%d", b.Pid())
			lift := b.group.KillForMemory(512 << 10)
			end := b.connect(1000) // each costs the runtime some kilobytes
			lab.Eventually(b.t, 10*time.Second, "the kernel kills it", func() error {
				_, err := os.Stat(dead)
				if err == nil {
					return errors.New("it lives")
				}
				return nil
			})
			b.injected = time.Now()
			return inTurn(end, lift, func() { b.Restart() })
		},
		evidence: func(b *bench) string { return "of cgroup " + b.group.Path() + " for its memory limit" },
		next:     func(b *bench) string { return "Raise the memory limit of the cgroup " + b.group.Path() },
	},
	{
		name: "start held up by 3 stopped shims", on: onContainerd, fresh: true,
		want: health.RuntimeStarting, goal: 4 * time.Second,
		onTheWay: append([]string{health.ShimStuck}, starting...),
		make: func(b *bench) func() {
			cont := b.stopShims(3)
			b.Kill()
			b.injected = time.Now()
			b.Launch()
			return inTurn(cont, b.AwaitAnswer)
		},
		steps: []pasted{{holds: "grep '[s]him'", want: "T"}},
	},
	{
		// Its start takes as long as that process holds the lock.
		name: "another process has the lock of the metadata at the start", on: onContainerd, fresh: true, restarts: true,
		want: health.RuntimeStorageLocked, goal: 8 * time.Second, onTheWay: starting, onTheWayBack: starting,
		make: func(b *bench) func() {
			b.Kill()
			holder, release := b.HoldLock("flock", b.file("root", "io.containerd.metadata.v1.bolt", "meta.db"))
			b.other, b.injected = holder, time.Now()
			b.Launch()
			return inTurn(release, b.AwaitAnswer)
		},
		evidence: func(b *bench) string { return fmt.Sprintf("held by pid %d", b.other) },
		culprit:  theOther,
		next:     pidOfOther,
	},
	{
		// As flock(1) leaves it in a shell: /proc/locks names a process that has ended.
		name: "the lock of the metadata has outlived the process that took it", on: onContainerd, fresh: true, restarts: true,
		want: health.RuntimeStorageLocked, goal: 8 * time.Second, onTheWay: starting, onTheWayBack: starting,
		make: func(b *bench) func() {
			b.Kill()
			holder := exec.Command("nsenter", "--mount", "--target", fmt.Sprint(b.Namespace.Pid()), "--",
				"sh", "-c", `exec 9<"$0"; flock 9; exec sleep 600`, b.file("root", "io.containerd.metadata.v1.bolt", "meta.db"))
			_, end := lab.StartCommand(b.t, holder)
			b.other, b.injected = holder.Process.Pid, time.Now()
			time.Sleep(200 * time.Millisecond) // until it has the lock
			b.Launch()
			return inTurn(end, b.AwaitAnswer)
		},
		evidence: func(*bench) string { return "which does not have it any more" },
		culprit:  theOther,
		next:     pidOfOther,
	},
	{
		// Connections wait in its queue; another start would fail or take the path.
		name: "the runtime is dead, and another process has its listening socket", fresh: true, restarts: true,
		on: onContainerd, want: health.RuntimeNotListening, goal: 8 * time.Second,
		onTheWay: []string{health.AcceptStalled, health.RuntimeUnresponsive}, onTheWayBack: append([]string{health.AcceptStalled}, starting...),
		make: func(b *bench) func() {
			end := b.helper("inherit", fmt.Sprint(b.Pid()))
			b.injected = time.Now()
			b.Kill()
			return inTurn(end, b.Start)
		},
		next: func(b *bench) string { return fmt.Sprintf("End pid %d", b.other) },
	},
	{
		name: "restarted again and again", want: health.RuntimeRestarting, goal: 3 * time.Second,
		fresh: true, restarts: true, onTheWay: starting,
		back: 65 * time.Second, // it ends when the runtime has run for a minute
		make: func(b *bench) func() {
			for range 3 {
				time.Sleep(2 * time.Second)
				b.injected = time.Now()
				b.Kill()
				b.Start()
			}
			return func() {}
		},
	},
	{
		// No connection is ever made to it, and each of its lives is shorter than a sample.
		name: "it ends at once, again and again", want: health.RuntimeRestarting, goal: 15 * time.Second, limit: 30 * time.Second,
		fresh: true, restarts: true, onTheWay: starting, onTheWayBack: starting,
		back: 65 * time.Second, // it ends when the runtime has run for a minute
		make: func(b *bench) func() {
			b.Kill()
			end := lab.Every(b.t, 2*time.Second, func() {
				b.Launch()
				time.Sleep(100 * time.Millisecond)
				b.Kill()
			})
			return inTurn(end, b.Start)
		},
	},
	{
		// It is seen once a call or a sample meets the half in which it is stopped.
		name: "stopped for half of every second", want: health.RuntimeFrozen, goal: 5 * time.Second, limit: 30 * time.Second,
		hold: 20 * time.Second, back: 12 * time.Second,
		make: func(b *bench) func() { return lab.StopInTurn(b.t, b.Pid(), time.Second) },
	},
}

// theOther is the other process of a fault as the culprit, pidOfOther that in a step.
func theOther(b *bench) facts.Link { return facts.Link{Kind: facts.KindProcess, PID: b.other} }

func pidOfOther(b *bench) string { return fmt.Sprintf("pid %d", b.other) }

// killedForMemory is the kill of a process in the cgroup of a hop, as of a shim or helper: it is the one with the highest
// score.
func killedForMemory(hop func(*bench) int, f fault) fault {
	f.prepare = func(b *bench) { b.group = lab.NewControlGroup(b.t, "memory", hop(b)) }
	f.want, f.goal, f.limit, f.back = health.RuntimeMemoryLimited, 8*time.Second, 30*time.Second, 75*time.Second
	f.fresh = true // a kill counts for a minute
	f.make = func(b *bench) func() {
		end := b.greedy()
		return inTurn(end, b.group.KillForMemory(160<<20))
	}
	f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: b.group.Path()} }
	f.next = func(b *bench) string { return "Raise the limit of the cgroup " + b.group.Path() }
	return f
}

func stopProcess(b *bench, pid int) (cont func()) {
	runtime.StopProcess(b.t, pid)
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // a restart may have ended it
}

func freezeGroup(g *lab.ControlGroup) (thaw func()) {
	g.Freeze(true)
	return func() { g.Freeze(false) }
}

// greedy starts a process in the runtime's cgroup that needs more memory soon, and is killed before the runtime.
func (b *bench) greedy() (end func()) {
	b.t.Helper()
	const script = `echo $$ >"$0/cgroup.procs"; echo 1000 >/proc/self/oom_score_adj; sleep 1; exec perl -e '$x = "x" x 256000000; sleep 60'`
	_, end = lab.StartCommand(b.t, exec.Command("sh", "-c", script, lab.CgroupRoot+"/memory"+b.group.Path()))
	return end
}

// heavyList makes the runtime's list cost CPU time, and gives the runtime a cgroup.
func (b *bench) heavyList(controller string) {
	runtime.Two(300, func(int) { b.pods[0].CreateHeavyContainer(1000) })
	b.group = lab.NewControlGroup(b.t, controller, b.Pid())
}

// hog keeps a CPU busy until its end.
func (b *bench) hog() (pid int, end func()) {
	b.t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	_, end = lab.StartCommand(b.t, cmd)
	return cmd.Process.Pid, end
}

// restartIfGone restarts a runtime whose server has ended by a failed accept(2): its
// socket is gone while the process lives.
func (b *bench) restartIfGone() {
	gone := false
	lab.Eventually(b.t, 10*time.Second, "the runtime accepts a connection, or its socket is gone", func() error {
		if _, err := os.Stat(b.socket); errors.Is(err, os.ErrNotExist) {
			gone = true
			return nil
		}
		return runtime.VersionAnswers(b.socket)
	})
	if gone {
		b.Restart()
	}
}
