package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// ipcWait follows a thread that sleeps in semop(2), msgrcv(2) or msgsnd(2) to the process that last changed the semaphore,
// sent to the queue or received from it, if that is held up. Of another one it cannot be seen whether it is to do so again.
func (f *waiting) ipcWait(ctx context.Context, t thread) {
	out := wait{key: ipcName(t.call), state: facts.LinkPeer}
	out.evidence = fmt.Sprintf("thread %d waits %s", t.PID, out.key)
	uses, err := f.ipcUses(t.call)
	if err != nil {
		out.unknown = "which process used it last is not known: " + proc.Why(err)
	} else {
		f.lastUser(ctx, &out, uses)
	}
	if out.next == 0 && len(f.last.threads) > 1 { // it may wait for work
		f.doubt("%s", out.evidence)
		return
	}
	f.add(out)
}

// ipcName describes what a call of System V IPC waits for.
func ipcName(call proc.Syscall) string {
	switch call.Number {
	case unix.SYS_MSGRCV:
		return fmt.Sprintf("to receive from System V message queue %d", call.FD())
	case unix.SYS_MSGSND:
		return fmt.Sprintf("to send to System V message queue %d", call.FD())
	}
	return fmt.Sprintf("for System V semaphore set %d", call.FD())
}

var errOtherIPC = errors.New("plegd is in another IPC namespace")

// ipcUses returns the last uses of the other kind than that for which a call of System V IPC waits.
func (f *waiting) ipcUses(call proc.Syscall) ([]proc.IPCUse, error) {
	shares, err := proc.IsSameLink(f.procfs+"/self/ns/ipc", proc.Path(f.procfs, f.pid, "ns/ipc"))
	switch {
	case err != nil:
		return nil, err
	case !shares: // where the id may be that of another object
		return nil, errOtherIPC
	}
	switch call.Number {
	case unix.SYS_MSGRCV:
		sent, _, err := proc.QueueUses(f.procfs, call.FD())
		return []proc.IPCUse{sent}, err
	case unix.SYS_MSGSND:
		_, received, err := proc.QueueUses(f.procfs, call.FD())
		return []proc.IPCUse{received}, err
	}
	return proc.AwaitedSemaphores(f.procfs, call.FD())
}

// lastUser completes a wait with the only other process of some uses that lives, or that alone stands still.
func (f *waiting) lastUser(ctx context.Context, out *wait, uses []proc.IPCUse) {
	how := map[int]string{}
	var pids []int
	for _, use := range uses {
		p, err := proc.ReadStat(f.procfs, use.PID)
		isOther := err == nil && !p.Dead() && use.PID != f.pid && use.IsBy(p)
		if isOther && how[use.PID] == "" {
			how[use.PID] = fmt.Sprintf("pid %d (%s) last %s", p.PID, p.Comm, use.What)
			pids = append(pids, p.PID)
		}
	}
	slices.Sort(pids)
	named := f.holdersToName(ctx, pids)
	switch len(named) {
	case 0:
		out.unknown = "no other process that lives and that plegd can see used it last"
		return
	case 1:
	default:
		out.unknown = fmt.Sprintf("%d processes used it last, and not one alone of them stands still", len(named))
		return
	}
	out.evidence += ": " + how[named[0]]
	isHeld := f.standsStill(ctx, named[0]) || f.isHeldUp(ctx, f.processes(ctx).ByPID[named[0]])
	if !isHeld {
		out.unknown = fmt.Sprintf("it may wait for pid %d, which is not held up: whether that is to use it again cannot be seen", named[0])
		return
	}
	out.next = named[0]
}
