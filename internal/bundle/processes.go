package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	maxProcesses = 100_000
	// maxDetailed is how many processes are described in files of their own.
	maxDetailed = 150
	// maxThreads and maxFDs bound what is listed of one process.
	maxThreads = 2000
	maxFDs     = 4096
)

// runtimeNames are the processes that run containers, and those that ask for it.
// A name that ends in * stands for all that begin so; the kernel keeps 15 bytes.
var runtimeNames = []string{
	"containerd", "crio", "dockerd", "cri-dockerd", "kubelet", "k3s*", "rke2*", "k0s*", "microk8s*",
	"containerd-shim*", "conmon*", "docker-proxy", "runc", "crun", "plegd", "buildkitd", "nerdctl", "ctr", "crictl", "podman",
}

// process is a process that the archive describes.
type process struct {
	pid  int
	stat proc.Stat
}

// Processes is the part of the runtime, its shims, helpers and clients: a file for
// each, with its threads, their wait channels and stacks, its open files by kind,
// and its cgroup.
func Processes(procfs, sysfs string) Part {
	return Part{Name: "processes", Time: 2 * partTime, Gather: func(ctx context.Context, add Add) error {
		all, err := listProcesses(procfs)
		if err != nil {
			return err
		}
		add("processes/list.txt", processTable(all), 0)
		tree := cgroup.NewTree(procfs, sysfs)
		groups := map[string]bool{}
		var errs []error
		for i, p := range related(all) {
			if i == maxDetailed || ctx.Err() != nil {
				errs = append(errs, fmt.Errorf("only the first %d processes are described", i))
				break
			}
			add(fmt.Sprintf("processes/%d-%s.txt", p.pid, fileName(p.stat.Comm)), describe(procfs, p.pid), 0)
			if name, content := cgroupFiles(&tree, sysfs, p.pid, groups); name != "" {
				add(name, content, 0)
			}
		}
		return errors.Join(errs...)
	}}
}

func listProcesses(procfs string) ([]process, error) {
	pids, err := proc.Numbers(procfs, maxProcesses)
	if err != nil {
		return nil, err
	}
	var out []process
	for _, pid := range pids {
		if s, err := proc.ReadStat(procfs, pid); err == nil {
			out = append(out, process{pid, s})
		}
	}
	return out, nil
}

// processTable is what ps would print.
func processTable(all []process) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%10s %10s %s %s\n", "PID", "PPID", "S", "COMM")
	for _, p := range all {
		fmt.Fprintf(&b, "%10d %10d %c %s\n", p.pid, p.stat.PPID, p.stat.State, p.stat.Comm)
	}
	return b.Bytes()
}

// related are the processes of runtimes and their descendants that are not
// containers' own: children of a runtime, not of a shim. Shims come last, and of
// them those that are stopped or wait in the kernel first: not all may fit.
func related(all []process) []process {
	daemons := map[int]bool{}
	var first, stuck, rest []process
	for _, p := range all {
		if !named(p.stat.Comm) {
			continue
		}
		if strings.Contains(p.stat.Comm, "shim") || strings.HasPrefix(p.stat.Comm, "conmon") {
			if strings.ContainsRune("TtD", rune(p.stat.State)) {
				stuck = append(stuck, p)
			} else {
				rest = append(rest, p)
			}
			continue
		}
		daemons[p.pid] = true
		first = append(first, p)
	}
	for _, p := range all {
		if daemons[p.stat.PPID] && !named(p.stat.Comm) {
			first = append(first, p) // a helper: a CNI plugin, a mount program
		}
	}
	return slices.Concat(first, stuck, rest)
}

func named(comm string) bool {
	return slices.ContainsFunc(runtimeNames, func(name string) bool {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			return strings.HasPrefix(comm, prefix)
		}
		return comm == name
	})
}

// fileName is a process's name as a part of a file's name.
func fileName(comm string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, comm)
}

// describe is all about one process, in sections. What cannot be read says why.
// The environment is left out: it holds secrets.
func describe(procfs string, pid int) []byte {
	var b bytes.Buffer
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	section := func(name string, content []byte, err error) {
		fmt.Fprintf(&b, "== %s\n", name)
		if err != nil {
			fmt.Fprintf(&b, "(%v)\n", err)
		}
		b.Write(bytes.TrimRight(content, "\n"))
		b.WriteString("\n\n")
	}
	args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	section("cmdline", []byte(strings.Join(proc.SplitArgs(args), " ")), err)
	for _, name := range []string{"status", "stat", "schedstat", "limits", "io", "cgroup", "oom_score_adj"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		section(name, content, err)
	}
	section("threads", threads(dir), nil)
	content, err := openFiles(dir)
	section("open files", content, err)
	return b.Bytes()
}

// threads lists the threads with what each waits for: its wait channel, system
// call and kernel stack.
func threads(dir string) []byte {
	var b bytes.Buffer
	tids, err := proc.Numbers(filepath.Join(dir, "task"), maxThreads)
	if err != nil {
		return []byte(err.Error())
	}
	for _, tid := range tids {
		task := filepath.Join(dir, "task", fmt.Sprint(tid))
		read := func(name string) string {
			content, err := os.ReadFile(filepath.Join(task, name))
			if err != nil {
				return "(" + cause(err) + ")"
			}
			return strings.TrimSpace(string(content))
		}
		state := "?"
		if content, err := os.ReadFile(filepath.Join(task, "stat")); err == nil {
			if s, err := proc.ParseStat(content); err == nil {
				state = string(s.State)
			}
		}
		fmt.Fprintf(&b, "%d %s comm=%s wchan=%s syscall=%s\n", tid, state, read("comm"), read("wchan"), read("syscall"))
		for _, line := range strings.Split(read("stack"), "\n") {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return b.Bytes()
}

// openFiles counts the open files by kind and lists where they lead.
func openFiles(dir string) ([]byte, error) {
	fds, err := proc.Numbers(filepath.Join(dir, "fd"), maxFDs)
	if err != nil {
		return nil, err
	}
	kinds := map[string]int{}
	var list bytes.Buffer
	for _, fd := range append([]int{0}, fds...) { // Numbers begins at 1
		target, err := os.Readlink(filepath.Join(dir, "fd", fmt.Sprint(fd)))
		if err != nil {
			continue
		}
		kind := "file"
		if before, _, ok := strings.Cut(target, ":"); ok && !strings.HasPrefix(target, "/") {
			kind = before
		}
		kinds[kind]++
		fmt.Fprintf(&list, "%d %s\n", fd, target)
	}
	var b bytes.Buffer
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "%s: %d\n", kind, kinds[kind])
	}
	b.Write(list.Bytes())
	return b.Bytes(), nil
}

// cause is an error without the path, which stands beside it.
func cause(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// cgroupControllers are those whose files are kept.
var cgroupControllers = []string{"memory", "cpu", "pids", "io", "freezer"}

// cgroupFiles returns the control files of a process's cgroup at every level, ""
// for a cgroup that is there already.
func cgroupFiles(tree *cgroup.Tree, sysfs string, pid int, seen map[string]bool) (name string, content []byte) {
	paths, err := tree.Of(pid)
	if err != nil {
		return "", nil
	}
	main := paths.Main()
	if seen[main] {
		return "", nil
	}
	seen[main] = true
	var b bytes.Buffer
	dirs := map[string]bool{}
	for _, controller := range cgroupControllers {
		for dir := range tree.Up(paths, controller) {
			if dirs[dir] {
				continue
			}
			dirs[dir] = true
			writeCgroup(&b, sysfs, dir)
		}
	}
	return "cgroups/" + fileName(strings.Trim(strings.ReplaceAll(main, "/", "_"), "_")) + ".txt", b.Bytes()
}

// writeCgroup writes the readable files of one level.
func writeCgroup(b *bytes.Buffer, sysfs, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Fprintf(b, "== %s\n(%s)\n\n", strings.TrimPrefix(dir, sysfs), cause(err))
		return
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !kept(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || len(content) == 0 {
			continue // write-only, or without a value at this level
		}
		fmt.Fprintf(b, "== %s/%s\n%s\n", strings.TrimPrefix(dir, sysfs), e.Name(), content)
	}
}

// kept reports whether a control file says something of limits and waits. The
// lists of processes are long and say nothing; memory.numa_stat and the slab
// lists neither.
func kept(name string) bool {
	for _, prefix := range []string{"memory.", "cpu.", "pids.", "io.", "freezer.", "cgroup.events", "cgroup.freeze", "cgroup.stat", "cgroup.type"} {
		if strings.HasPrefix(name, prefix) {
			return !strings.Contains(name, "numa_stat") && !strings.Contains(name, "kmem") && name != "memory.pressure_level"
		}
	}
	return false
}
