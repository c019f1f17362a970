//go:build e2e

package faults

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// dockerFaults are the faults behind cri-dockerd, on a real dockerd: the reasons are those
// of the runtime, about another process on the call's way.
var dockerFaults = []fault{
	{
		name: "dockerd without a descriptor, 400 idle connections", incident: "6 [moby 35961](https://github.com/moby/moby/issues/35961)",
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindProcess, PID: b.dockerd.Pid(), Name: "dockerd"}
		},
		next: func(b *bench) string { return fmt.Sprintf("At pid %d (", b.dockerd.Pid()) },
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
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
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
	{
		// Nobody connects to it but plegd: a client waits only once its probe does.
		name: "dockerd's containerd without a descriptor", on: onDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second, onTheWay: []string{health.FDsRunningOut},
		evidence:     func(b *bench) string { return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.ContainerdPid()) },
		onTheWayBack: []string{health.FDsRunningOut},
		make:         func(b *bench) func() { return lab.LimitFiles(b.t, b.dockerd.ContainerdPid(), 8) },
	},
	{
		name: "a shim of Docker's stopped", on: onDocker,
		want: health.ShimStuck, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (containerd-shim) stopped", b.Shim(b.pods[0])) },
		make:     func(b *bench) func() { return stopProcess(b, b.Shim(b.pods[0])) },
	},
}
