package evidence

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	// A search looks at this many processes at most, for this long in one sample;
	// one that found nothing is not repeated before searchAgain.
	searchProcesses = 10000
	searchFor       = time.Second
	searchAgain     = 30 * time.Second
	// holderStatMax is more than /proc/PID/stat can have.
	holderStatMax = 4 << 10
)

// holder is the process that holds a socket; pid is 0 when it cannot be told.
type holder struct {
	pid         int
	comm, state string
	start       string // in clock ticks since boot: tells it from a later process
}

// holders finds out which process holds a socket, and remembers it. Not for
// several goroutines at once.
type holders struct {
	procfs string
	known  map[uint32]foundHolder

	// A search that was cut continues after this process, as long as it is for none
	// but these sockets: on a busy node, and with processes of many descriptors, one
	// second is not enough for all.
	sought map[uint32]bool
	after  int
}

type foundHolder struct {
	holder holder
	at     time.Time
}

// of returns the processes that hold the sockets. It goes through all
// processes' descriptors only for a socket that it does not know.
func (o *holders) of(ctx context.Context, inodes []uint32) map[uint32]holder {
	known := map[uint32]foundHolder{}
	search := map[uint32]bool{}
	for _, inode := range inodes {
		f, ok := o.known[inode]
		if ok && f.holder.pid != 0 {
			now, err := readHolder(o.procfs, f.holder.pid)
			if ok = err == nil && now.start == f.holder.start; ok {
				f.holder = now
			}
		} else if ok {
			ok = time.Since(f.at) < searchAgain
		}
		if ok {
			known[inode] = f
		} else {
			search[inode] = true
		}
	}
	if len(search) > 0 {
		found, all := o.search(ctx, search)
		for inode := range search {
			if who, err := readHolder(o.procfs, found[inode]); err == nil {
				known[inode] = foundHolder{holder: who, at: time.Now()}
			} else if all {
				known[inode] = foundHolder{at: time.Now()}
			}
		}
	}
	o.known = known // the others are not asked about any more
	out := make(map[uint32]holder, len(known))
	for inode, f := range known {
		out[inode] = f.holder
	}
	return out
}

// search returns the first process found with a descriptor for each socket, and
// whether it has looked at all processes.
func (o *holders) search(ctx context.Context, want map[uint32]bool) (found map[uint32]int, all bool) {
	for inode := range want {
		if !o.sought[inode] {
			o.after = 0
		}
	}
	o.sought = want
	pids, err := proc.Numbers(o.procfs, searchProcesses)
	if err != nil {
		return nil, true
	}
	slices.Sort(pids)
	begin, _ := slices.BinarySearch(pids, o.after+1)
	found = map[uint32]int{}
	until := time.Now().Add(searchFor)
	over := func() bool { return len(found) == len(want) || ctx.Err() != nil || time.Now().After(until) }
	for i, pid := range pids[begin:] {
		proc.EachSocket(proc.Path(o.procfs, pid, "fd"), over, func(inode uint32) {
			if _, ok := found[inode]; want[inode] && !ok {
				found[inode] = pid
			}
		})
		cut := over()
		if !cut || i == 0 { // one that takes all the time there is gets it once
			o.after = pid
		}
		if cut {
			return found, len(found) == len(want)
		}
	}
	o.after = 0
	return found, true
}

func readHolder(procfs string, pid int) (holder, error) {
	f, err := os.Open(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		return holder{}, err
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, holderStatMax))
	if err != nil {
		return holder{}, err
	}
	return parseHolder(pid, b)
}

var errNotStat = errors.New("not the stat file of a process")

// parseHolder decodes /proc/PID/stat: pid (comm) state, then numbers, the 22nd
// field of all its start. The name may have blanks and brackets in it.
func parseHolder(pid int, b []byte) (holder, error) {
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return holder{}, errNotStat
	}
	rest := bytes.Fields(b[to+1:])
	if len(rest) < 20 || len(rest[0]) != 1 {
		return holder{}, errNotStat
	}
	return holder{pid: pid, comm: string(b[from+1 : to]), state: string(rest[0]), start: string(rest[19])}, nil
}
