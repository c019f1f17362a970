package chain

import (
	"context"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// Unnoticed returns the chain from a process that does not take note of the end of a container, the first of several writers
// for which there is one, to the only process that stands still at the other ends of its sockets and FIFOs, or else does not
// read there. It is empty where there is none.
func (e *Explorer) Unnoticed(ctx context.Context, d Debt, writers []int) facts.Chain {
	for _, pid := range writers {
		d.Waiter = pid
		c := e.begin(ctx, d, facts.LinkPeer)
		f, ok := e.look(ctx, pid)
		if len(c.Links) == 0 || !ok {
			continue // it has just ended
		}
		f.queues(ctx)
		f.fifos(ctx)
		silent := f.halted(ctx)
		if len(silent) == 0 {
			silent = f.found // one that merely does not read
		}
		if len(silent) == 1 && silent[0].next != 0 {
			c.Links[0].Evidence += "; " + silent[0].evidence
			e.follow(ctx, &c, silent[0].next)
			e.finish(&c)
			return c
		}
	}
	return facts.Chain{}
}

// fifo is a named pipe that a process may write to.
type fifo struct {
	path  string
	stat  unix.Stat_t
	peers []int // the other processes that have it open
}

// fifos adds the processes that stand still and that alone have the other ends of the FIFOs of this one.
func (f *waiting) fifos(ctx context.Context) {
	all := f.writtenFIFOs()
	if len(all) == 0 {
		return
	}
	_, err := proc.Holders(ctx, f.procfs, func(pid, fd int, leads string) bool {
		named := all[path.Base(leads)] // the directory may be another one in another mount namespace
		if pid != f.pid {
			addPeer(named, f.procfs, pid, fd)
		}
		return false // it may have several of them
	})
	f.unseenIf("the descriptors of other processes", err)
	if err != nil {
		return // another reader may be hidden
	}
	for _, named := range all {
		for _, one := range named {
			f.fifoWait(one)
		}
	}
}

// addPeer adds a process to those of the FIFOs that its descriptor leads to.
func addPeer(named []*fifo, procfs string, pid, fd int) {
	if len(named) == 0 {
		return
	}
	st, err := proc.StatFD(procfs, pid, fd)
	for _, one := range named {
		if err == nil && st.Dev == one.stat.Dev && st.Ino == one.stat.Ino {
			one.peers = append(one.peers, pid)
		}
	}
}

// fifoWait adds the process that has the other end of a FIFO, if all that have it stand still.
func (f *waiting) fifoWait(one *fifo) {
	held := f.heldUp(one.peers)
	if len(held) > 0 && len(held) == len(one.peers) {
		evidence := fmt.Sprintf("it writes to FIFO %s, whose other end pid %d alone has", one.path, held[0])
		f.add(wait{state: facts.LinkPeer, next: held[0], evidence: evidence})
	}
}

// writtenFIFOs returns the FIFOs that the process has open to write to and not to read from, by their base names.
func (f *waiting) writtenFIFOs() map[string][]*fifo {
	out := map[string][]*fifo{}
	err := proc.EachFD(f.procfs, f.pid, func(fd int, leads string) bool {
		if !proc.IsFile(leads) || proc.ReadFDInfo(f.procfs, f.pid, fd).Flags&unix.O_ACCMODE != unix.O_WRONLY {
			return true
		}
		st, err := proc.StatFD(f.procfs, f.pid, fd)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			out[path.Base(leads)] = append(out[path.Base(leads)], &fifo{path: leads, stat: st})
		}
		return true
	})
	f.unseenIf("its descriptors", err)
	return out
}
