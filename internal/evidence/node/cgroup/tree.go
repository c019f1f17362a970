// Package cgroup finds the cgroups of a process below /sys/fs/cgroup, of v1, hybrid and
// v2, and reads the files of each level up to the root: freezer, CPU quota, limits,
// pressure. It does not judge, and writes nothing.
package cgroup

import (
	"cmp"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// Paths are the cgroups of one process: by the controllers of a v1 hierarchy as
// /proc/PID/cgroup lists them ("cpu,cpuacct"), and by "" that of v2's.
type Paths map[string]string

// ParsePaths decodes /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1, "0::/path"
// for v2. An invalid line is left out.
func ParsePaths(b []byte) Paths {
	m := Paths{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			m[parts[1]] = parts[2]
		}
	}
	return m
}

// Main is the cgroup by which a person knows the process: where a service manager put it.
func (m Paths) Main() string {
	_, cpu, _ := m.v1("cpu")
	for _, p := range []string{m[""], m["name=systemd"], cpu} {
		if p != "" && p != "/" {
			return p
		}
	}
	return "/"
}

// v1 returns the v1 hierarchy that has a controller.
func (m Paths) v1(controller string) (list, path string, ok bool) {
	for list, path := range m {
		if controller != "" && slices.Contains(strings.Split(list, ","), controller) {
			return list, path, true
		}
	}
	return "", "", false
}

// Tree finds cgroups below /sys/fs/cgroup.
type Tree struct {
	ProcFS, Root string // Root is /sys/fs/cgroup
}

// NewTree returns the cgroups below fs/cgroup of sysfs, of the processes below procfs.
func NewTree(procfs, sysfs string) Tree {
	return Tree{ProcFS: procfs, Root: filepath.Join(sysfs, "fs/cgroup")}
}

// Of returns the cgroups of a process.
func (t *Tree) Of(pid int) (Paths, error) {
	b, err := proc.ReadFile(proc.Path(t.ProcFS, pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	m := ParsePaths(b)
	for list, path := range m {
		switch {
		case path == "/.." || strings.HasPrefix(path, "/../"):
			if m[list], err = t.outside(m, list, pid); err != nil {
				return nil, err
			}
		case strings.HasSuffix(path, " (deleted)"): // it has ended, and its cgroup after it
			return nil, fmt.Errorf("look at the cgroup of pid %d: %w", pid, fs.ErrNotExist)
		}
	}
	return m, nil
}

// outside returns the path from the root of the hierarchy of a cgroup that is outside
// plegd's cgroup namespace, as the runtime's is for a pod that is not privileged. The
// kernel gives it relative to that namespace ("/../../system.slice/x"). If it is in another
// branch from the root on, the rest is the path, and its list of processes holds pid.
func (t *Tree) outside(m Paths, list string, pid int) (string, error) {
	rest := m[list]
	for rest == "/.." || strings.HasPrefix(rest, "/../") {
		rest = rest[len("/.."):]
	}
	rest = "/" + strings.TrimPrefix(rest, "/")
	controller, _, _ := strings.Cut(list, ",")
	if base, _, _ := t.Base(m, controller); base != "" {
		b, err := proc.ReadFile(base + rest + "/cgroup.procs")
		if err == nil && slices.Contains(strings.Fields(string(b)), strconv.Itoa(pid)) {
			return rest, nil
		}
	}
	return "", fmt.Errorf("look at the cgroup of pid %d: %s is outside plegd's cgroup namespace, and %s/cgroup.procs "+
		"below %s does not hold it; plegd needs the node's /sys, and its PIDs", pid, m[list], rest, t.Root)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Base returns where the hierarchy of a controller is mounted, and the path of the cgroup
// in it; "" for neither. The v1 hierarchy comes before the unified one, which is also that
// of the controller "".
func (t *Tree) Base(m Paths, controller string) (base, path string, v2 bool) {
	if list, path, ok := m.v1(controller); ok {
		for _, name := range []string{list, controller} {
			if base := t.Root + "/" + strings.TrimPrefix(name, "name="); exists(base) {
				return base, path, false
			}
		}
		return "", "", false
	}
	if path, ok := m[""]; ok {
		for _, base := range []string{t.Root, t.Root + "/unified"} {
			if exists(base + "/cgroup.controllers") {
				return base, path, true
			}
		}
	}
	return "", "", true
}

// Up goes from the cgroup to the root of a controller's hierarchy: directories and paths.
func (t *Tree) Up(m Paths, controller string) iter.Seq2[string, string] {
	return func(yield func(dir, path string) bool) {
		base, path, _ := t.Base(m, controller)
		if base == "" {
			return
		}
		for path = strings.TrimSuffix(path, "/"); yield(base+path, cmp.Or(path, "/")) && path != ""; {
			path = path[:strings.LastIndexByte(path, '/')]
		}
	}
}

// Shows reports whether any of the cgroups is there.
func (t *Tree) Shows(m Paths) bool {
	for list := range m {
		name, _, _ := strings.Cut(list, ",")
		if base, path, _ := t.Base(m, name); base != "" && exists(base+path) {
			return true
		}
	}
	return false
}
