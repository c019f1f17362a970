//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// storageFaults are those of the file systems and locks that the runtime uses. Lists
// are answered in all of them, and no pod can be started.
var storageFaults = []fault{
	full("root full, tmpfs", "tmpfs", "free (tmpfs)", (*runtime.FileSystem).Fill),
	full("root full, ext4", "ext4", "free (ext4 on /dev/loop", (*runtime.FileSystem).Fill,
		pasted{holds: "df -h", wantOf: func(b *bench) string { return "100% " + b.disk.Path() }, inside: true},
		pasted{holds: "df -i", wantOf: func(b *bench) string { return b.disk.Path() }, inside: true},
		pasted{holds: "findmnt", want: "errors=remount-ro", inside: true},
		pasted{holds: "du -xh", wantOf: func(b *bench) string { return b.disk.Path() }, inside: true}),
	full("root out of inodes, ext4", "ext4", "inodes free (ext4", (*runtime.FileSystem).FillInodes, pasted{holds: "rmi --prune"}),
	full("root mounted read-only", "tmpfs", "read-only (tmpfs", (*runtime.FileSystem).ReadOnly),
	{
		// Only another mount ends it, for which the runtime must let go of the old one.
		name: "root read-only after an error, ext4", on: onContainerd, want: health.RuntimeStorageFull, goal: 5 * time.Second,
		fresh: true, restarts: true, onTheWayBack: starting, back: 20 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallRoot("ext4") },
		evidence:  func(b *bench) string { return "root " + b.disk.Path() + ": read-only since an error" },
		make: func(b *bench) func() {
			b.disk.Fail()
			b.cannotStart()
			return inTurn(b.Kill, b.disk.Replace, b.Start, b.ImportImage)
		},
	},
	{
		name: "state full, tmpfs", on: onContainerd, want: health.RuntimeStorageFull, goal: 5 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallState() },
		evidence:  func(b *bench) string { return "state " + b.disk.Path() + ": " },
		make: func(b *bench) func() {
			undo := b.disk.Fill()
			b.cannotStart()
			return undo
		},
	},
	{
		name: "a mount hides the root of the running runtime", on: onContainerd, want: health.RuntimeStorageFull, goal: 8 * time.Second,
		evidence: constant("is not there any more"), next: constant("Do not restart the runtime before"),
		make: func(b *bench) func() { return b.SmallRoot("tmpfs").Unmount },
	},
	{
		name: "a mount hides the state of the running runtime", on: onContainerd, want: health.RuntimeStorageFull, goal: 8 * time.Second,
		evidence: constant("is not there any more"), next: constant("Do not restart the runtime before"),
		make: func(b *bench) func() { return b.SmallState().Unmount },
	},
	{
		name: "the database of the running runtime is moved", on: onContainerd, want: health.RuntimeStorageFull, goal: 8 * time.Second,
		evidence: constant("is not there any more"), next: constant("Do not restart the runtime before"),
		make: func(b *bench) func() {
			dir := fmt.Sprintf("/proc/%d/root%s", b.Namespace.Pid(), b.file("root", "io.containerd.metadata.v1.bolt"))
			b.must(os.Rename(dir, dir+".moved"))
			return func() { b.must(os.Rename(dir+".moved", dir)) }
		},
	},
	written("conmon's exit files: no space", onCRIO, (*runtime.FileSystem).Fill, func(*bench) string { return "/run/crio/exits" }),
	written("conmon's logs: no inodes", onCRIO, (*runtime.FileSystem).FillInodes, func(b *bench) string { return b.file("log") }),
	written("pinned namespaces: no inodes", onCRIO, (*runtime.FileSystem).FillInodes, func(b *bench) string { return b.file("state", "ns") }),
	written("the network plugins' files: read-only", []string{"containerd", "CRI-O"}, (*runtime.FileSystem).ReadOnly,
		func(*bench) string { return "/var/lib/cni" }),
	written("the containers' FIFOs, on a mount of their own: read-only", onContainerd, (*runtime.FileSystem).ReadOnly,
		constant("/run/containerd/fifo")),
	written("cri-dockerd's files: no space", onDocker, (*runtime.FileSystem).Fill, func(b *bench) string { return b.file("state") }),
	{
		name: "file system below the runtime's root frozen", want: health.RuntimeStorageStall, goal: 13 * time.Second, limit: 25 * time.Second,
		incident:  "14 disk frozen below the runtime's root, lists answered",
		configure: func(b *bench) { b.disk = b.RootOnDisk() },
		evidence:  func(*bench) string { return "in D for" },
		make: func(b *bench) func() {
			thaw := b.disk.Freeze()
			wait := b.startPod()
			return inTurn(thaw, wait)
		},
		culprit: func(b *bench) facts.Link {
			if b.Dockerd() != nil { // its mkdirat has the path in memory, which plegd does not read
				return facts.Link{Kind: facts.KindKernel, State: facts.LinkBlocked}
			}
			return facts.Link{Kind: facts.KindMount, Name: b.disk.Path(), State: facts.LinkFrozen}
		},
		next: func(b *bench) string { return "`fsfreeze -u " + b.disk.Path() + "`" },
	},
	{
		// It runs for a moment every 2 s, and is in D at each look.
		name: "disk of the runtime's root throttled to 2 KiB/s", on: onContainerd, want: health.RuntimeStorageStall,
		goal: 20 * time.Second, limit: 40 * time.Second, back: 60 * time.Second,
		configure: func(b *bench) { b.disk = b.RootOnDisk() },
		prepare:   func(b *bench) { b.group = lab.NewControlGroup(b.t, "blkio", b.Pid()) },
		make: func(b *bench) func() {
			b.group.LimitWrites(b.disk.Device(), 2<<10)
			wait := b.startPod()
			return func() {
				b.group.LimitWrites(b.disk.Device(), 0)
				wait()
			}
		},
	},
	{
		name: "storage lock held by another process", on: onCRIO, want: health.RuntimeStorageLocked, goal: 13 * time.Second, limit: 30 * time.Second,
		incident: "13 storage lock held by another process", back: 20 * time.Second,
		make: func(b *bench) func() {
			holder, release := b.HoldLock("lockf", b.file("root", "overlay-images", "images.lock"))
			b.other = holder
			wait := b.startPod()
			return inTurn(release, wait)
		},
		culprit: theOther,
		next:    pidOfOther,
		steps: []pasted{
			{holds: "ps -o pid", wantOf: func(b *bench) string { return fmt.Sprint(b.other) }},
			{holds: "cat /proc/locks", want: "-> "},
		},
	},
}

// full is a fault of the root's file system.
func full(name, kind, evidence string, fill func(*runtime.FileSystem) func(), steps ...pasted) fault {
	return fault{
		name: name, on: onContainerd, want: health.RuntimeStorageFull, goal: 5 * time.Second, steps: steps,
		configure: func(b *bench) { b.disk = b.SmallRoot(kind) },
		evidence:  func(*bench) string { return evidence },
		make: func(b *bench) func() {
			undo := fill(b.disk)
			b.cannotStart()
			return func() {
				undo()
				pod := b.cri.RunPod() // it is over
				b.t.Cleanup(pod.Discard)
			}
		},
	}
}

// written is a fault of a file system to which the runtime or a process of its family writes, besides its root.
func written(name string, on []string, spoil func(*runtime.FileSystem) func(), dir func(*bench) string) fault {
	return fault{
		name: name, on: on, want: health.RuntimeStorageFull, goal: 5 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallDir(dir(b)) },
		evidence:  func(b *bench) string { return " " + b.disk.Path() },
		make:      func(b *bench) func() { return spoil(b.disk) },
	}
}

// cannotStart shows that lists are answered and no pod can be started.
func (b *bench) cannotStart() {
	b.t.Helper()
	b.injected = time.Now()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if pod, err := b.cri.TryRunPod(ctx); err == nil {
		pod.Discard()
		b.t.Errorf("a pod could be started on %s", b.disk.Path())
	}
	if states, err := b.cri.States(time.Second); err != nil || len(states) == 0 {
		b.t.Errorf("the containers: %v, %v", states, err)
	}
}

// dockerFaults are the faults behind cri-dockerd, on a real dockerd: the reasons are those
// of the runtime, about another process on the call's way.
var dockerFaults = []fault{
	{
		name: "dockerd without a descriptor, 400 idle connections", incident: "6 [moby 35961](https://github.com/moby/moby/issues/35961)",
		culprit: func(*bench) facts.Link {
			return facts.Link{Kind: facts.KindProcess, PID: os.Getpid()}
		},
		next: func(*bench) string { return "keeps its connections; its end frees them" },
		on:   onDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.Pid()) },
		make: func(b *bench) func() {
			undo := lab.LimitFiles(b.t, b.dockerd.Pid(), 200)
			end := connectTo(b.dockerd.Socket, 400)
			return inTurn(end, undo)
		},
	},
	{
		// What the page says first: it ends no container.
		name: "dockerd without a descriptor, prlimit ends it", steps: []pasted{{holds: "prlimit --nofile", repairs: true}},
		on:   onDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
		make: func(b *bench) func() {
			undo := lab.LimitFiles(b.t, b.dockerd.Pid(), 200)
			b.t.Cleanup(connectTo(b.dockerd.Socket, 400))
			return undo
		},
	},
	{
		name: "dockerd stopped", steps: []pasted{{holds: "kill -CONT", repairs: true}},
		on:   onDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (dockerd): all", b.dockerd.Pid()) },
		make:     func(b *bench) func() { return stopProcess(b, b.dockerd.Pid()) },
	},
	{
		name: "dockerd frozen", on: onDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(*bench) string { return "is frozen: " },
		prepare:  func(b *bench) { b.group = lab.NewControlGroup(b.t, "freezer", b.dockerd.Pid()) },
		make: func(b *bench) func() {
			b.group.Freeze(true)
			return func() { b.group.Freeze(false) }
		},
	},
	{
		name: "dockerd killed", on: onDocker,
		want: health.RuntimeNotListening, goal: 5 * time.Second, onTheWayBack: starting,
		evidence: func(*bench) string { return "nobody listens" },
		make: func(b *bench) func() {
			b.dockerd.Kill()
			return b.dockerd.Start
		},
	},
	{
		name: "dockerd accepts nobody, accept queue filled", on: onDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second, onTheWay: noDescriptor,
		evidence: func(*bench) string { return "accept queue 4097 of 4096" },
		make: func(b *bench) func() {
			undo := lab.LimitFiles(b.t, b.dockerd.Pid(), 8)
			end := connectTo(b.dockerd.Socket, 10000)
			return inTurn(end, undo)
		},
	},
	{
		name: "dockerd's containerd stopped", steps: []pasted{{holds: "kill -CONT", repairs: true}},
		on:   onDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (containerd): all", b.dockerd.ContainerdPid()) },
		make:     func(b *bench) func() { return stopProcess(b, b.dockerd.ContainerdPid()) },
	},
	{
		name: "dockerd's containerd stopped, a pod is stopped", on: onDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second, fresh: true, hold: 20 * time.Second,
		make: func(b *bench) func() {
			cont := runtime.StopProcess(b.t, b.dockerd.ContainerdPid())
			wait := inBackground(b.pods[0].Stop) // its inspection hangs with it
			return inTurn(cont, wait)
		},
	},
	{
		name: "dockerd stopped and continued in turn", on: onDocker,
		want: health.RuntimeFrozen, goal: 6 * time.Second, limit: 20 * time.Second,
		onTheWayBack: []string{health.RelistSlow},
		make:         func(b *bench) func() { return lab.StopInTurn(b.t, b.dockerd.Pid(), 1200*time.Millisecond) },
	},
	{
		name: "a CPU quota of dockerd", on: onDocker,
		want: health.RuntimeThrottled, goal: 5 * time.Second, limit: 20 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "cpu", b.dockerd.Pid()) },
		make: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
		back: 20 * time.Second, onTheWayBack: []string{health.RelistSlow},
	},
	killedForMemory(func(b *bench) int { return b.dockerd.Pid() }, fault{
		name: "the kernel kills a process of dockerd's cgroup", on: onDocker,
		evidence: func(b *bench) string { return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.Pid()) },
	}),
	{
		name: "dockerd is traced and stopped by a debugger", on: onDocker, want: health.RuntimeFrozen, goal: 5 * time.Second,
		make:    func(b *bench) func() { return b.helper("trace", fmt.Sprint(b.dockerd.Pid())) },
		culprit: theOther, next: pidOfOther,
	},
	{
		// Nobody connects to it but plegd: a client waits only once its probe does.
		name: "dockerd's containerd without a descriptor", on: onDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second, onTheWay: []string{health.FDsRunningOut},
		evidence:     func(b *bench) string { return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.ContainerdPid()) },
		onTheWayBack: []string{health.FDsRunningOut},
		make:         func(b *bench) func() { return lab.LimitFiles(b.t, b.dockerd.ContainerdPid(), 8) },
	},
	{
		name: "an authorization plugin of dockerd is stopped", on: onDocker, want: health.RuntimePeerStuck, symptom: health.RuntimeUnresponsive,
		goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second,
		onTheWay: []string{health.RuntimeUnresponsive}, onTheWayBack: []string{health.RuntimeUnresponsive, health.RelistSlow},
		configure: func(b *bench) {
			b.helper("plugin", fmt.Sprintf("/proc/%d/root/run/docker/plugins/authz.sock", b.Namespace.Pid()))
			b.dockerd.Configure(`{"live-restore": true, "authorization-plugins": ["authz"]}`)
		},
		make: func(b *bench) func() { return stopProcess(b, b.other) },
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindProcess, PID: b.other, State: facts.LinkStopped}
		},
		next: func(b *bench) string { return fmt.Sprintf("`kill -CONT %d`", b.other) },
	},
	{
		name: "a shim of Docker's stopped", on: onDocker,
		want: health.ShimStuck, goal: stoppedWithin,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (containerd-shim) stopped", b.Shim(b.pods[0])) },
		make:     func(b *bench) func() { return stopProcess(b, b.Shim(b.pods[0])) },
	},
}
