package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// holder returns the process, other than pid, that holds a descriptor for which keep is
// true: where it leads and, on request, its fdinfo decide. Of several, pid 1 does not
// count, since systemd keeps the sockets that it made; else the only one that does not run
// counts. The text is the reason why there is none; alone is true where only pid itself
// holds one.
func (w *Walker) holder(
	ctx context.Context, pid int, what string, keep func(to string, info func() []byte) bool,
) (next int, unknown string, alone bool) {
	pids, err := node.Holders(ctx, w.procfs, func(p int, fd, to string) bool {
		return keep(to, func() []byte { return w.rawFDInfo(p, fd) })
	})
	rest := slices.DeleteFunc(slices.Clone(pids), func(p int) bool { return p == pid || p == 1 && len(pids) > 1 })
	if held := slices.DeleteFunc(slices.Clone(rest), w.runs); len(rest) > 1 && len(held) == 1 {
		rest = held
	}
	switch {
	case len(rest) == 1:
		return rest[0], "", false
	case len(rest) > 1:
		return 0, fmt.Sprintf("%d processes hold the other end of %s", len(rest), what), false
	case err != nil:
		return 0, "the holder of the other end of " + what + " cannot be read (CAP_SYS_PTRACE)", false
	case len(pids) > 0:
		return 0, "only the process itself holds the other end of " + what, true
	}
	return 0, "no process that plegd can see holds the other end of " + what, false
}

// runs reports whether the first thread of a process is neither stopped, traced nor in D.
func (w *Walker) runs(pid int) bool {
	s, err := proc.ReadStat(w.procfs, pid)
	return err != nil || strings.IndexByte("TtD", s.State) < 0
}

// socketHolder is holder for a socket.
func (w *Walker) socketHolder(ctx context.Context, pid int, what string, inode uint32) (int, string, bool) {
	link := fmt.Sprintf("socket:[%d]", inode)
	return w.holder(ctx, pid, what, func(to string, _ func() []byte) bool { return to == link })
}
