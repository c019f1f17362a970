package chain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// leaseWait adds the holders of the leases that are to be given up, as of a file that is opened
// or executed: those of the lock's file are not shown of a waiting thread.
func (f *waiting) leaseWait(t thread) {
	locks, err := proc.ReadLocks(f.procfs)
	f.unseenIf("/proc/locks", err)
	out := wait{state: facts.LinkLocked, evidence: fmt.Sprintf("thread %d waits for the lease of a file", t.PID)}
	holders := map[int]bool{}
	for _, lease := range locks {
		if lease.Breaking && lease.PID > 0 {
			holders[lease.PID] = true
			out.next = lease.PID
			out.evidence = fmt.Sprintf("thread %d waits for the lease of file %s, which pid %d has", t.PID, lease.File, lease.PID)
		}
	}
	if len(holders) != 1 {
		out.next = 0
		out.key = "lease"
		out.unknown = fmt.Sprintf("%d processes have leases that are to be given up", len(holders))
	}
	f.add(out)
}

// leaseLooks is how often a thread that runs in each tick is looked at: it may run just then.
const leaseLooks = 5

// polledLease adds the lease for which a process of one thread waits that has run meanwhile: until
// a lease is given up for reading the kernel looks at it in each tick (__break_lease in
// fs/locks.c). A child that cannot begin its program has one thread.
func (f *waiting) polledLease() {
	t := f.last.threads[f.pid]
	if len(f.last.threads) != 1 || f.first.threads[f.pid].Schedstat == t.Schedstat {
		return
	}
	for range leaseLooks {
		f.place(&t)
		if t.kind() == wchan.Lease {
			f.leaseWait(t)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// fileLocks adds the holders of the locks for which the process waits by /proc/locks. The
// wait for a lock of an open file stands there without a process: threads show the file.
func (f *waiting) fileLocks(ctx context.Context) {
	locks, err := proc.ReadLocks(f.procfs)
	f.unseenIf("/proc/locks", err)
	waits := slices.DeleteFunc(locks, func(l proc.Lock) bool {
		return !l.WaitsFor(f.pid) && (!l.Waiting || l.PID >= 0 || f.lockPath(l) == "")
	})
	p := cmp.Or(f.symptom.Locked, &facts.Process{})
	polled := p.PID == f.pid && p.Lock != nil && p.Lock.HolderPID > 0
	for _, l := range waits {
		f.add(f.lockWait(ctx, l))
	}
	if !polled || len(f.found) > 0 {
		return
	}
	if out, ok := f.polledLock(ctx, p.Lock.File); ok {
		f.add(out)
	}
}

// lockPath returns the path of a lock's file where a thread shows it, else "".
func (f *waiting) lockPath(l proc.Lock) string {
	return f.lockPaths[l.Inode()]
}

// lockWait is the wait for a lock.
func (f *waiting) lockWait(ctx context.Context, l proc.Lock) wait {
	out := wait{
		key: "lock " + l.File, state: facts.LinkLocked, next: l.Holder,
		evidence: "waits for the lock of " + cmp.Or(f.lockPath(l), "file "+l.File),
	}
	if l.Holder == 0 || !proc.HasLock(f.procfs, l.Holder, l.File) {
		out.next = 0
		out = f.heldBy(ctx, out, "the lock", proc.IsFile, func(info proc.FDInfo) bool { return info.HasLock(l.File) })
	}
	if out.next != 0 {
		out.evidence += fmt.Sprintf(", which pid %d has", out.next)
	}
	return out
}

// polledLock is the wait of a process that asks again and again for the lock of a file which it has open, as iptables
// does: /proc/locks shows no wait then. path is that of the file, "" for any. ok is false for any other process.
func (f *waiting) polledLock(ctx context.Context, path string) (out wait, ok bool) {
	locks, err := proc.ReadLocks(f.procfs)
	f.unseenIf("/proc/locks", err)
	mounts, err := f.table.Mounts(ctx, f.pid)
	f.unseenIf("its mounts", err)
	files, err := proc.OpenFiles(ctx, f.procfs, f.pid, mounts, "")
	f.unseenIf("its descriptors", err)
	for _, l := range locks {
		if l.Waiting || l.Shared || l.PID <= 0 || l.PID == f.pid || files[l.File] == "" {
			continue
		}
		if path != "" && files[l.File] != path {
			continue
		}
		f.lockPaths[l.Inode()] = files[l.File]
		return f.lockWait(ctx, proc.Lock{File: l.File, Holder: l.PID}), true
	}
	return wait{}, false
}
