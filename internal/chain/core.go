package chain

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// kernelThreads is the process whose children the kernel starts.
const kernelThreads = 2

// dumpsCore is the wait of a process until its memory is written: to the program that the kernel starts for that, where
// core_pattern names one, else to a file. ok is false for another process.
func (f *waiting) dumpsCore(ctx context.Context) (out wait, ok bool) {
	isDumping, err := proc.IsDumpingCore(f.procfs, f.pid)
	f.unseenIf("its status", err)
	if !isDumping {
		return wait{}, false
	}
	program, err := proc.CoreProgram(f.procfs)
	f.unseenIf("core_pattern", err)
	if program == "" {
		return wait{state: facts.LinkBlocked, evidence: "has crashed, and its core is being written to a file"}, true
	}
	handlers := f.coreHandlers(ctx, program)
	if len(handlers) != 1 {
		return unclear("has crashed, and its core is being written to "+program, "%d processes may receive it", len(handlers)), true
	}
	evidence := fmt.Sprintf("has crashed, and its core is being written to pid %d (%s)", handlers[0].PID, handlers[0].Comm)
	return wait{state: facts.LinkPeer, next: handlers[0].PID, evidence: evidence}, true
}

// coreHandlers returns the processes that may receive the core: of the program, started by the kernel; that whose arguments have
// the pid of the process, where there is one.
func (f *waiting) coreHandlers(ctx context.Context, program string) (out []proc.Process) {
	for _, p := range f.processes(ctx).Children(kernelThreads) {
		args := f.table.Args(p.ID())
		switch {
		case !slices.Contains(args, program):
		case slices.Contains(args, strconv.Itoa(f.pid)):
			return []proc.Process{p}
		default:
			out = append(out, p)
		}
	}
	return out
}
