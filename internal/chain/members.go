package chain

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// processes returns the processes of the node: with Unread, those that could be read in time.
func (e *Explorer) processes(ctx context.Context) *proc.Processes {
	all, err := e.table.Processes(ctx, tableAge)
	if all == nil {
		return &proc.Processes{Unread: err}
	}
	return all
}

// runtime returns the process whose children are helpers, 0 while it is not known.
func (e *Explorer) runtime() int { return cmp.Or(e.symptom.DaemonPID, e.symptom.RuntimePID) }

// isShim reports whether a process is a shim or conmon of the runtime.
func (e *Explorer) isShim(ctx context.Context, p proc.Process) bool {
	return e.members.Shim(ctx, p, e.symptom.RuntimePID).Proven()
}

// kindOf returns what a process is to the runtime.
func (e *Explorer) kindOf(ctx context.Context, p proc.Process) facts.LinkKind {
	if e.isShim(ctx, p) {
		return facts.KindShim
	}
	if e.isHelper(ctx, p) {
		return facts.KindHelper
	}
	return facts.KindProcess
}

// isHelper reports whether a process is a helper of the runtime or of a shim from which it
// descends, or an OCI runtime whose parent has ended.
func (e *Explorer) isHelper(ctx context.Context, p proc.Process) bool {
	all := e.processes(ctx)
	top := p
	for _, pid := range all.Ancestors(p.PPID) {
		parent := all.ByPID[pid]
		if pid == e.runtime() || pid == e.symptom.RuntimePID || e.isShim(ctx, parent) {
			answer := e.members.Helper(ctx, p, top, parent)
			return answer.Proven() || answer.Lasts && (top.PID == e.symptom.Helper || proc.ThreadState(top.State) == "T")
		}
		top = parent
	}
	return e.members.Orphan(ctx, p).Proven()
}

// helpersOf returns the helpers that are children of a process and run for longer than
// they should, the oldest first; only those that work on a container, unless id is "". The error is
// why it is not known of another one whether it works on it.
func (e *Explorer) helpersOf(ctx context.Context, parent int, id string) (out []proc.Process, unread error) {
	for _, p := range e.processes(ctx).Children(parent) {
		if age(p) < helperAge || e.kindOf(ctx, p) != facts.KindHelper {
			continue
		}
		works, err := e.worksOn(p, id)
		if err != nil && !proc.Gone(err) {
			unread = fmt.Errorf("whether the helper with pid %d (%s) works on it could not be read (%s)", p.PID, p.Comm, proc.Why(err))
		}
		if works {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b proc.Process) int { return cmp.Compare(a.Start, b.Start) })
	return out, unread
}

// maxEnviron bounds the environment of a helper that is read.
const maxEnviron = 64 << 10

// worksOn reports whether a helper names a container or sandbox in its arguments, or as a CNI plugin
// does; true for the id "". The error is why that is not known.
func (e *Explorer) worksOn(p proc.Process, id string) (bool, error) {
	if id == "" || slices.Contains(e.table.Args(p.ID()), id) {
		return true, nil
	}
	environ, err := proc.Read(proc.Path(e.procfs, p.PID, "environ"), maxEnviron)
	return slices.Contains(strings.Split(string(environ), "\x00"), "CNI_CONTAINERID="+id), err
}

// idLength is that of a container's or sandbox's id, in hexadecimal digits.
const idLength = 64

// unlisted returns the containers, or sandboxes, that helpers of shims work on and that no list has had: one that was made
// just before the list hangs may be what it waits for.
func (e *Explorer) unlisted(ctx context.Context, listed []*cri.Entry) (out []*cri.Entry) {
	known := map[string]bool{}
	for _, t := range listed {
		known[t.ID] = true
	}
	all := e.processes(ctx)
	for _, shim := range all.ByPID {
		if !e.isShim(ctx, shim) {
			continue
		}
		for _, helper := range all.Children(shim.PID) {
			id := e.workedOn(ctx, helper)
			if id == "" || known[id] {
				continue
			}
			known[id] = true
			sandbox := family.ShimID(shim, e.table.Args(shim.ID()))
			out = append(out, &cri.Entry{ID: id, SandboxID: sandbox, Sandbox: e.symptom.Operation == cri.OpListPodSandbox})
		}
	}
	return out
}

// workedOn returns the id that a helper names as its last argument, "" for none.
func (e *Explorer) workedOn(ctx context.Context, p proc.Process) string {
	if e.kindOf(ctx, p) != facts.KindHelper {
		return ""
	}
	args := e.table.Args(p.ID())
	if len(args) == 0 {
		return ""
	}
	id := args[len(args)-1]
	_, err := hex.DecodeString(id)
	if err != nil || len(id) != idLength {
		return ""
	}
	return id
}

// age is how long a process has run.
func age(p proc.Process) time.Duration { return proc.Uptime() - proc.TicksToDuration(p.Start) }
