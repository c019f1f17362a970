package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// Limits of the listing of one process.
const (
	maxThreads = 2000
	maxFDs     = 4096
)

// Involved returns the processes that a diagnosis is about: those of the wait chain,
// the runtime, its stuck shims and old helpers, the kubelet, and plegd.
func Involved(s *health.Snapshot) (pids []int) {
	add := func(pid int) {
		if pid > 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	for _, l := range s.Chain {
		add(l.PID)
	}
	e := &s.Facts.Evidence
	if e.Process != nil {
		add(e.Process.PID)
	}
	if e.Children != nil {
		for _, c := range slices.Concat(e.Children.Stuck, e.Children.Old) {
			add(c.PID)
		}
	}
	if e.KubeletProcess != nil {
		add(e.KubeletProcess.PID)
	}
	add(os.Getpid())
	return pids
}

// Processes is the part of some processes, a file for each: status, threads with wait
// channels and stacks, open files, and the files of its cgroup at every level.
func Processes(procfs, sysfs string, pids []int) Part {
	return Part{Name: "processes", Time: 2 * partTime, Gather: func(ctx context.Context, add Add) error {
		tree := cgroup.NewTree(procfs, sysfs)
		var errs []error
		for _, pid := range pids {
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			comm, err := os.ReadFile(filepath.Join(procfs, fmt.Sprint(pid), "comm"))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			add(fmt.Sprintf("processes/%d-%s.txt", pid, fileName(strings.TrimSpace(string(comm)))), describe(procfs, pid), 0)
			if paths, err := tree.Of(pid); err != nil {
				errs = append(errs, err)
			} else {
				add(fmt.Sprintf("processes/%d-cgroup.txt", pid), cgroupFiles(&tree, paths), 0)
			}
		}
		return errors.Join(errs...)
	}}
}

// fileName replaces characters that a file name should not have.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// describe returns the files of one process in sections, without its environment,
// which holds secrets.
func describe(procfs string, pid int) []byte {
	var b bytes.Buffer
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	for _, name := range []string{"cmdline", "status", "stat", "schedstat", "limits", "io", "cgroup", "oom_score_adj"} {
		content := bytes.ReplaceAll([]byte(read(dir, name)), []byte{0}, []byte{' '})
		fmt.Fprintf(&b, "== %s\n%s\n\n", name, content)
	}
	fmt.Fprintln(&b, "== threads: id, state, name, wait channel, system call, kernel stack")
	tids, err := proc.Numbers(filepath.Join(dir, "task"), maxThreads)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, tid := range tids {
		task := filepath.Join(dir, "task", fmt.Sprint(tid))
		state := "?"
		if s, err := proc.ParseStat([]byte(read(task, "stat"))); err == nil {
			state = string(s.State)
		}
		fmt.Fprintf(&b, "%d %s %s wchan=%s syscall=%s\n    %s\n", tid, state, read(task, "comm"), read(task, "wchan"),
			read(task, "syscall"),
			strings.ReplaceAll(read(task, "stack"), "\n", "\n    "))
	}
	fmt.Fprintln(&b, "\n== open files")
	fds, err := proc.Numbers(filepath.Join(dir, "fd"), maxFDs)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, fd := range append([]int{0}, fds...) { // Numbers begins at 1
		if target, err := os.Readlink(filepath.Join(dir, "fd", fmt.Sprint(fd))); err == nil {
			fmt.Fprintf(&b, "%d %s\n", fd, target)
		}
	}
	return b.Bytes()
}

// read returns the content of a file, or why it cannot be read.
func read(dir, name string) string {
	content, err := os.ReadFile(filepath.Join(dir, name))
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return "(" + failed.Err.Error() + ")"
	}
	return strings.TrimSpace(string(content))
}

// cgroupFiles returns the limits, counters and pressure of a cgroup and of those above.
func cgroupFiles(tree *cgroup.Tree, paths cgroup.Paths) []byte {
	var b bytes.Buffer
	seen := map[string]bool{}
	for _, controller := range []string{"memory", "cpu", "pids", "io", "freezer"} {
		for dir := range tree.Up(paths, controller) {
			if seen[dir] {
				continue
			}
			seen[dir] = true
			for _, prefix := range []string{"memory.", "cpu.", "pids.", "io.", "freezer.", "cgroup.events", "cgroup.freeze",
				"cgroup.stat"} {
				names, _ := filepath.Glob(filepath.Join(dir, prefix+"*")) // the pattern is valid
				for _, name := range names {
					content, err := os.ReadFile(name)
					if err == nil && len(content) > 0 && !strings.Contains(name, "numa_stat") {
						fmt.Fprintf(&b, "== %s\n%s\n", name, content)
					}
				}
			}
		}
	}
	return b.Bytes()
}
