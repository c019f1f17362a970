//go:build e2e

package faults

import (
	"fmt"
	"net"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// criDockerd is the column of the faults behind cri-dockerd.
var criDockerd = []string{"cri-dockerd"}

// notDocker is why they are not made elsewhere.
const notDocker = "there is no dockerd behind it"

// dockerMatrix are the faults of what is behind cri-dockerd, made on a real
// dockerd. A /_ping that fails is named within 5 s.
var dockerMatrix = []fault{
	{
		name: "dockerd without a descriptor, 400 idle connections", on: criDockerd, why: notDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
		evidence: func(b *bench) string {
			return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.Pid())
		},
		inject: func(b *bench) func() {
			undo := b.dockerd.LimitFiles(200)
			open := connectTo(b.dockerd.Socket, 400)
			return func() {
				closeAll(open)
				undo()
			}
		},
	},
	{
		// What the page says first: it ends no container.
		name: "dockerd without a descriptor, prlimit ends it", on: criDockerd, why: notDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
		inject: func(b *bench) func() {
			undo := b.dockerd.LimitFiles(200)
			open := connectTo(b.dockerd.Socket, 400)
			b.t.Cleanup(func() { closeAll(open) })
			return undo
		},
	},
	{
		name: "dockerd stopped", on: criDockerd, why: notDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (dockerd): all", b.dockerd.Pid()) },
		inject:   func(b *bench) func() { return lab.StopProcess(b.t, b.dockerd.Pid()) },
	},
	{
		name: "dockerd frozen", on: criDockerd, why: notDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(*bench) string { return "is frozen: " },
		prepare:  func(b *bench) { b.group = lab.NewControlGroup(b.t, "freezer", b.dockerd.Pid()) },
		inject: func(b *bench) func() {
			b.group.Freeze(true)
			return func() { b.group.Freeze(false) }
		},
	},
	{
		name: "dockerd killed", on: criDockerd, why: notDocker,
		want: health.RuntimeNotListening, goal: 5 * time.Second,
		evidence: func(*bench) string { return "nobody listens" },
		inject: func(b *bench) func() {
			b.dockerd.Kill()
			return b.dockerd.Start
		},
	},
	{
		name: "dockerd accepts nobody, accept queue filled", on: criDockerd, why: notDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second,
		evidence: func(*bench) string { return "accept queue 4097 of 4096" },
		inject: func(b *bench) func() {
			undo := b.dockerd.LimitFiles(8)
			open := connectTo(b.dockerd.Socket, 10000)
			return func() {
				closeAll(open)
				undo()
			}
		},
	},
	{
		name: "dockerd's containerd stopped", on: criDockerd, why: notDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second,
		evidence: func(b *bench) string {
			return fmt.Sprintf("pid %d (containerd): all", b.dockerd.ContainerdPid())
		},
		inject: func(b *bench) func() { return lab.StopProcess(b.t, b.dockerd.ContainerdPid()) },
	},
	{
		name: "dockerd's containerd stopped, a pod is stopped", on: criDockerd, why: notDocker,
		want: health.RuntimeFrozen, goal: 5 * time.Second, fresh: true, hold: 20 * time.Second,
		inject: func(b *bench) func() {
			cont := lab.StopProcess(b.t, b.dockerd.ContainerdPid())
			ended := make(chan struct{})
			go func() { // its inspection hangs with it
				defer close(ended)
				b.pods[0].Stop()
			}()
			return func() {
				cont()
				<-ended
			}
		},
	},
	{
		name: "dockerd stopped and continued in turn", on: criDockerd, why: notDocker,
		want: health.RuntimeFrozen, goal: 6 * time.Second, limit: 20 * time.Second,
		onTheWayBack: []string{health.RelistSlow},
		inject:       func(b *bench) func() { return lab.StopInTurn(b.t, b.dockerd.Pid(), 1200*time.Millisecond) },
	},
	{
		name: "a CPU quota of dockerd", on: criDockerd, why: notDocker,
		want: health.RuntimeThrottled, goal: 5 * time.Second, limit: 20 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "cpu", b.dockerd.Pid()) },
		inject: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
		back: 10 * time.Second, backLimit: 20 * time.Second, onTheWayBack: []string{health.RelistSlow},
	},
	{
		// Nobody connects to it but plegd: a client waits only once its probe does.
		name: "dockerd's containerd without a descriptor", on: criDockerd, why: notDocker,
		want: health.AcceptFDExhausted, goal: 5 * time.Second, onTheWay: []string{health.FDsRunningOut},
		evidence:     func(b *bench) string { return fmt.Sprintf("behind the runtime: pid %d (", b.dockerd.ContainerdPid()) },
		onTheWayBack: []string{health.FDsRunningOut},
		inject:       func(b *bench) func() { return lab.LimitFiles(b.t, b.dockerd.ContainerdPid(), 8) },
	},
	{
		name: "a shim of Docker's stopped", on: criDockerd, why: notDocker,
		want: health.ShimStuck, goal: 5 * time.Second,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (containerd-shim) stopped", b.Shim(b.pods[0])) },
		inject:   func(b *bench) func() { return lab.StopProcess(b.t, b.Shim(b.pods[0])) },
	},
}

// connectTo opens idle connections to a socket until there are n or none can
// be made.
func connectTo(socket string, n int) (open []net.Conn) {
	for range n {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return open
		}
		open = append(open, c)
	}
	return open
}
