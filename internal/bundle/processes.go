package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	maxThreads = 2000 // of one process
	maxFDs     = 4096 // and of entries of a cgroup
)

// Involved returns the processes that a diagnosis is about: those of the wait chain,
// the runtime, its stuck shims and old helpers, the kubelet, and plegd.
func Involved(s *facts.Snapshot) (pids []int) {
	for _, l := range s.Chain {
		pids = append(pids, l.PID)
	}
	e := &s.Facts.Evidence
	if e.Process != nil {
		pids = append(pids, e.Process.PID)
	}
	if e.Children != nil {
		for _, c := range slices.Concat(e.Children.Stuck, e.Children.Old) {
			pids = append(pids, c.PID)
		}
	}
	if e.KubeletProcess != nil {
		pids = append(pids, e.KubeletProcess.PID)
	}
	return append(pids, os.Getpid())
}

// Processes is the part of some processes, a file for each: status, threads with wait
// channels and stacks, open files, and the files of its cgroup at every level.
func Processes(table *proc.Table, sysfs string, pids []int) Part {
	return Part{Name: "processes", Gather: func(ctx context.Context, add Add) error {
		tree := proc.NewCgroupTree(table.ProcFS, sysfs, proc.Files{})
		seen := map[int]bool{0: true} // of links without a process
		var errs []error
		for _, pid := range pids {
			if seen[pid] || ctx.Err() != nil {
				continue
			}
			seen[pid] = true
			errs = append(errs, addProcess(table, tree, pid, add))
		}
		return errors.Join(errs...)
	}}
}

func addProcess(table *proc.Table, tree proc.CgroupTree, pid int, add Add) error {
	comm, err := proc.Read(proc.Path(table.ProcFS, pid, "comm"), maxFileBytes)
	if err != nil {
		return err
	}
	add(fmt.Sprintf("processes/%d-%s.txt", pid, url.PathEscape(strings.TrimSpace(string(comm)))), describe(table, pid))
	paths, err := tree.Of(pid)
	if err != nil {
		return err
	}
	add(fmt.Sprintf("processes/%d-cgroup.txt", pid), cgroupFiles(tree, paths))
	return nil
}

// describe returns the files of one process, without its environment, which holds secrets.
func describe(table *proc.Table, pid int) []byte {
	var b bytes.Buffer
	dir := proc.Path(table.ProcFS, pid, "")
	for _, name := range []string{"cmdline", "status", "stat", "schedstat", "limits", "io", "cgroup", "oom_score_adj"} {
		fmt.Fprintf(&b, "== %s\n%s\n\n", name, strings.ReplaceAll(read(table, dir, name), "\x00", " "))
	}
	fmt.Fprintln(&b, "== threads: stat, wait channel, system call, kernel stack")
	tids, _ := proc.Numbers(filepath.Join(dir, "task"), maxThreads) // those that are read
	for _, tid := range tids {
		task := proc.Path(filepath.Join(dir, "task"), tid, "")
		fmt.Fprintln(&b, read(table, task, "stat"))
		writeWait(&b, table, task)
	}
	fmt.Fprintln(&b, "\n== open files")
	shown := 0
	err := proc.EachFD(table.ProcFS, pid, func(fd int, link string) bool {
		fmt.Fprintf(&b, "%d %s\n", fd, link)
		shown++
		return shown < maxFDs
	})
	if err != nil {
		fmt.Fprintf(&b, "(%v)\n", err)
	}
	return b.Bytes()
}

// read returns the content of a file, or why it cannot be read. It does not wait for one that
// blocks.
func read(table *proc.Table, dir, name string) string {
	content, err := table.ReadSlow(filepath.Join(dir, name), maxFileBytes)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return strings.TrimSpace(string(content))
}

// cgroupFiles returns the limits, counters and pressure of a cgroup and of those above.
func cgroupFiles(tree proc.CgroupTree, paths proc.Cgroups) []byte {
	var b bytes.Buffer
	seen := map[string]bool{}
	for _, controller := range []string{"memory", "cpu", "pids", "io", "freezer"} {
		for dir := range tree.Up(paths, controller) {
			for _, name := range filesOf(dir) {
				content, err := proc.Read(name, maxFileBytes)
				if err == nil && len(content) > 0 && !seen[name] && !strings.Contains(name, "numa_stat") {
					fmt.Fprintf(&b, "== %s\n%s\n", name, content)
				}
				seen[name] = true
			}
		}
	}
	return b.Bytes()
}

// filesOf returns the paths of a cgroup's files: their names have a dot.
func filesOf(dir string) (out []string) {
	names, _ := proc.Names(dir, maxFDs) // as many as can be read
	for _, name := range names {
		if strings.Contains(name, ".") {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out
}
