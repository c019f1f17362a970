package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxProcesses bounds the processes whose descriptors are read.
const maxProcesses = 32768

// eachFD calls f for every descriptor of every process; complete is false where
// some could not be read. A process that has the descriptors of another one (a
// thread group) has them once.
func (w *Walker) eachFD(ctx context.Context, f func(pid int, fd, to string)) (complete bool) {
	pids, err := proc.Numbers(w.procfs, maxProcesses)
	if err != nil {
		return false
	}
	complete = len(pids) < maxProcesses
	for _, pid := range pids {
		if ctx.Err() != nil {
			return false
		}
		if err := w.eachFDOf(pid, f); err != nil && !proc.Gone(err) {
			complete = false
		}
	}
	return complete
}

// eachFDOf calls f for every descriptor of a process.
func (w *Walker) eachFDOf(pid int, f func(pid int, fd, to string)) error {
	return proc.EachFD(w.procfs, pid, func(fd, to string) bool {
		f(pid, fd, to)
		return true
	})
}

// holdersOf returns the processes that hold a socket or pipe, by the link of a descriptor;
// complete is false where some could not be read. keep decides which descriptors count;
// nil for all.
func (w *Walker) holdersOf(ctx context.Context, to string, keep func(pid int, fd string) bool) (pids []int, complete bool) {
	complete = w.eachFD(ctx, func(pid int, fd, at string) {
		if at == to && (keep == nil || keep(pid, fd)) {
			pids = append(pids, pid)
		}
	})
	return distinct(pids), complete
}

// other returns the process at the other end of something that pid has an end of: the
// only one that is not pid itself. Of several, pid 1 does not count, since systemd keeps
// the sockets that it made; else the only one that does not run counts. The text is the
// reason why there is none.
func (w *Walker) other(pid int, pids []int, complete bool, what string) (int, string) {
	rest := slices.DeleteFunc(slices.Clone(pids), func(p int) bool {
		return p == pid || p == 1 && len(pids) > 1
	})
	if len(rest) > 1 {
		held := slices.DeleteFunc(slices.Clone(rest), func(p int) bool { return !w.stopped(p) })
		if len(held) == 1 {
			rest = held
		}
	}
	switch {
	case len(rest) == 1:
		return rest[0], ""
	case len(rest) > 1:
		return 0, fmt.Sprintf("%d processes hold the other end of %s", len(rest), what)
	case !complete:
		return 0, fmt.Sprintf("who holds the other end of %s cannot be read (CAP_SYS_PTRACE, or %v)", what, proc.ErrManyFDs)
	case len(pids) > 0:
		return 0, "only the process itself holds the other end of " + what
	default:
		return 0, "no process that plegd can see holds the other end of " + what
	}
}

// stopped reports whether the first thread of a process is stopped, traced or in D.
func (w *Walker) stopped(pid int) bool {
	s, err := w.reader.Stat(w.procfs, pid)
	return err == nil && strings.IndexByte("TtD", s.State) >= 0
}

func distinct(pids []int) []int {
	slices.Sort(pids)
	return slices.Compact(pids)
}
