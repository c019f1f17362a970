package node

import (
	"context"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	// argsTimeout limits the wait for one process's arguments.
	argsTimeout = 50 * time.Millisecond
	// maxArgs bounds what is read of them, in bytes.
	maxArgs = 16 << 10
	// argsReaders bounds the reads that hang.
	argsReaders = 4
)

// arguments holds the arguments of processes. Reading /proc/PID/cmdline blocks while
// the memory map of the process is locked, as of one that is stuck in the kernel: a
// read that does not return in time is abandoned.
type arguments struct {
	mu    sync.Mutex
	known map[proc.ID][]string
	// hung are the processes whose arguments could not be read in time.
	hung  map[proc.ID]bool
	slots [argsReaders]bounded.Slot[[]byte]
}

func (a *arguments) of(procfs string, id proc.ID) []string {
	if id.PID == 0 {
		return nil
	}
	a.mu.Lock()
	args, ok := a.known[id]
	ok = ok || a.hung[id]
	a.mu.Unlock()
	if ok {
		return args
	}
	b, err := a.read(proc.Path(procfs, id.PID, "cmdline"))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known, a.hung = map[proc.ID][]string{}, map[proc.ID]bool{}
	}
	if err != nil {
		a.hung[id] = true
		return nil
	}
	a.known[id] = proc.SplitArgs(b)
	return a.known[id]
}

// read reads a file by the first reader that is free.
func (a *arguments) read(path string) (b []byte, err error) {
	for i := range a.slots {
		if a.slots[i].Busy() {
			continue
		}
		return a.slots[i].Do(context.Background(), argsTimeout, func(context.Context) ([]byte, error) {
			return proc.ReadLimited(path, maxArgs)
		})
	}
	return nil, bounded.ErrBusy
}

// forget drops the processes that have ended, and lets those be read again whose
// arguments could not be.
func (a *arguments) forget(p *Processes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.hung)
	for id := range a.known {
		if s, ok := p.ByPID[id.PID]; !ok || s.ID() != id {
			delete(a.known, id)
		}
	}
}
