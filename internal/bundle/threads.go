package bundle

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/proc"
)

const (
	maxListed     = 500     // threads in D that are listed
	maxTasks      = 1 << 15 // of one process
	inotifyLink   = "anon_inode:inotify"
	maxUsers      = 100       // processes with inotify instances that are listed
	maxMountBytes = 8 << 20   // of one mount table
	maxFileBytes  = fileBytes // of any other file of /proc
)

// StuckThreads is the part of all threads of the node in uninterruptible sleep, with wait
// channel, system call and kernel stack.
func StuckThreads(table *proc.Table) Part {
	return Part{Name: "threads in D", Gather: func(ctx context.Context, add Add) error {
		var b bytes.Buffer
		listed := 0
		err := eachProcess(ctx, table, func(p proc.Process) { listed += writeStuck(&b, table, p, maxListed-listed) })
		if listed == 0 && err == nil {
			fmt.Fprintln(&b, "no thread is in D")
		}
		add("node/threads-in-D.txt", b.Bytes())
		return err
	}}
}

// writeStuck writes at most limit threads of a process that are in D, and returns how many.
func writeStuck(b *bytes.Buffer, table *proc.Table, p proc.Process, limit int) int {
	task := proc.Path(table.ProcFS, p.PID, "task")
	tids, _ := proc.Numbers(task, maxTasks) // those that are read
	listed := 0
	for _, tid := range tids {
		thread, err := proc.ReadStat(task, tid)
		if err != nil || thread.State != 'D' || listed >= limit {
			continue
		}
		listed++
		fmt.Fprintf(b, "pid %d (%s), thread %d (%s), parent %d\n", p.PID, p.Comm, tid, thread.Comm, p.PPID)
		writeWait(b, table, proc.Path(task, tid, ""))
	}
	return listed
}

// writeWait writes where a thread waits in the kernel.
func writeWait(b *bytes.Buffer, table *proc.Table, dir string) {
	fmt.Fprintf(b, "wchan=%s syscall=%s\n%s\n\n", read(table, dir, "wchan"), read(table, dir, "syscall"), read(table, dir, "stack"))
}

// eachProcess calls f for each process of the node until ctx is done.
func eachProcess(ctx context.Context, table *proc.Table, f func(proc.Process)) error {
	all, err := table.Processes(ctx, time.Second)
	if err != nil {
		return err
	}
	pids := make([]int, 0, len(all.ByPID))
	for pid := range all.ByPID {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f(all.ByPID[pid])
	}
	return nil
}

// inotifyUser is a process with inotify instances.
type inotifyUser struct {
	proc.Process

	instances int
}

// mountTable is a mount namespace.
type mountTable struct {
	namespace string
	first     proc.Process // its process with the lowest pid
	processes int
	mounts    string // their number, or why it cannot be read
}

// Usage is the part of kernel objects by process: inotify instances, and mounts by mount
// namespace.
func Usage(table *proc.Table) Part {
	return Part{Name: "inotify and mounts", Gather: func(ctx context.Context, add Add) error {
		var users []inotifyUser
		tables := map[string]*mountTable{}
		err := eachProcess(ctx, table, func(p proc.Process) {
			if n := inotifyInstances(table.ProcFS, p.PID); n > 0 {
				users = append(users, inotifyUser{Process: p, instances: n})
			}
			namespace, err := proc.MountNamespace(table.ProcFS, p.PID)
			if err != nil {
				return // a kernel thread, or it has ended
			}
			known := tables[namespace]
			if known == nil {
				known = &mountTable{namespace: namespace, first: p, mounts: countMounts(table, p.PID)}
				tables[namespace] = known
			}
			known.processes++
		})
		add("node/inotify.txt", inotifyText(table, users))
		add("node/mounts-by-namespace.txt", mountsText(table, tables))
		return err
	}}
}

func inotifyInstances(procfs string, pid int) int {
	n := 0
	_ = proc.EachFD(procfs, pid, func(_ int, link string) bool { // of one that cannot be read none is known
		if link == inotifyLink {
			n++
		}
		return true
	})
	return n
}

func countMounts(table *proc.Table, pid int) string {
	b, err := table.ReadSlow(proc.Path(table.ProcFS, pid, "mountinfo"), maxMountBytes)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return fmt.Sprint(bytes.Count(b, []byte("\n")))
}

func inotifyText(table *proc.Table, users []inotifyUser) []byte {
	slices.SortStableFunc(users, func(a, b inotifyUser) int { return b.instances - a.instances })
	var b bytes.Buffer
	fmt.Fprintf(&b, "fs.inotify.max_user_instances %s, for each user\nINSTANCES PROCESS\n",
		read(table, table.ProcFS, "sys/fs/inotify/max_user_instances"))
	for _, u := range users[:min(len(users), maxUsers)] {
		fmt.Fprintf(&b, "%9d pid %d (%s)\n", u.instances, u.PID, u.Comm)
	}
	return b.Bytes()
}

func mountsText(table *proc.Table, tables map[string]*mountTable) []byte {
	var list []*mountTable
	for _, t := range tables {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *mountTable) int { return a.first.PID - b.first.PID })
	var b bytes.Buffer
	fmt.Fprintf(&b, "fs.mount-max %s, for each namespace\nMOUNTS PROCESSES FIRST PROCESS\n", read(table, table.ProcFS, "sys/fs/mount-max"))
	for _, t := range list {
		fmt.Fprintf(&b, "%6s %9d pid %d (%s), %s\n", t.mounts, t.processes, t.first.PID, t.first.Comm, t.namespace)
	}
	return b.Bytes()
}
