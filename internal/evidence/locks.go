package evidence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// startDuration is the longest start of a runtime: a snapshotter's database is opened after
	// the socket.
	startDuration = 5 * time.Minute
	// databaseInterval is the time between two reads of which databases a process has open, from
	// databaseSettles after its start on: there are hundreds of descriptors beside them.
	databaseInterval = 5 * time.Second
	databaseSettles  = 30 * time.Second
)

// lockWait returns a file lock, or a lease, that the process of a sample waits for; nil for none, and of a stopped process,
// which polls for none. bbolt, in which containerd keeps meta.db, polls, so /proc/locks shows no waiter: a process that
// starts waits for a database that it has open and another process has locked. That is looked for once a call is late or a
// thread sleeps in a call.
func (p *Process) lockWait(ctx context.Context, v *facts.Process) *facts.LockWait {
	began, sleeps := youngestSleeper(v)
	if v.Stopped() {
		p.lockFile = ""
		return nil
	}
	locks, err := proc.ReadLocks(p.hop.procfs)
	p.unread.Add("file locks", err)
	waits := slices.DeleteFunc(slices.Clone(locks), func(l proc.Lock) bool { return !l.WaitsFor(v.PID) })
	if len(waits) == 0 && (!p.hop.isCalm() || sleeps) && p.mayPoll(v) {
		waits = p.databaseLocks(ctx, v, locks)
	}
	if len(waits) == 0 {
		p.lockFile = ""
		return nil
	}
	known := slices.IndexFunc(waits, func(l proc.Lock) bool { return l.File == p.lockFile })
	l := waits[max(0, known)]
	out := &facts.LockWait{HolderPID: l.Holder, Since: began}
	locked, isHeld, err := proc.LockedPath(p.hop.procfs, l.Holder, l.File)
	p.unread.Add("descriptors of a lock's holder", err)
	out.File = cmp.Or(p.openFiles(ctx, v.PID, "")[l.File], locked, l.File)
	if known >= 0 {
		out.Since = p.last.Lock.Since
	}
	holder, err := p.hop.table.Alive(l.Holder)
	if err == nil && isHeld {
		out.HolderComm = holder.Comm
	}
	p.lockFile = l.File
	return out
}

// youngestSleeper returns the start of the sleep of the thread that began last among those that wait asleep
// for no work, and the moment of the sample where there is none.
func youngestSleeper(v *facts.Process) (began time.Time, found bool) {
	for _, t := range slices.Backward(v.Blocked) { // the longest is the first
		if t.Asleep {
			return t.Since, true
		}
	}
	return v.At, false
}

// mayPoll reports whether a process may poll for a lock: while it starts or does not listen, and
// as long as it waits for one.
func (p *Process) mayPoll(v *facts.Process) bool {
	queue := p.hop.queue()
	listens := queue != nil && queue.Inode != 0
	return v.At.Sub(v.Start) < startDuration || !listens || p.lockFile != ""
}

// databaseLocks returns the locks that other processes hold on databases that a process has
// open.
func (p *Process) databaseLocks(ctx context.Context, v *facts.Process, locks []proc.Lock) []proc.Lock {
	foreign := slices.DeleteFunc(locks, func(l proc.Lock) bool { return l.Waiting || l.PID <= 0 || l.PID == v.PID })
	if len(foreign) == 0 {
		return nil
	}
	settled := v.At.Sub(v.Start) >= databaseSettles && v.PID == p.last.PID
	if !settled || v.At.Sub(p.databasesRead) >= databaseInterval {
		p.databasesRead = v.At
		p.databases = p.openFiles(ctx, v.PID, ".db")
	}
	var out []proc.Lock
	for _, l := range foreign {
		if p.databases[l.File] != "" {
			out = append(out, proc.Lock{File: l.File, Holder: l.PID})
		}
	}
	return out
}

// openFiles returns the paths of files with a suffix that the process has open, as proc.OpenFiles has them.
func (p *Process) openFiles(ctx context.Context, pid int, suffix string) map[string]string {
	mounts, err := p.hop.table.Mounts(ctx, pid)
	p.unread.Add("mount table", err)
	out, err := proc.OpenFiles(ctx, p.hop.procfs, pid, mounts, suffix)
	p.unread.Add("descriptors", err)
	return out
}
