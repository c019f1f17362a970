// Package cgroup finds the cgroups of a process below /sys/fs/cgroup, of v1, hybrid
// and v2, and reads the files of each level up to the root: freezer, CPU quota,
// limits, pressure.
//
// It parses and does not judge: which level holds a process up is for its callers
// to say. It writes nothing and changes no cgroup.
package cgroup

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// Number reads a file with one number in it.
func (t *Tree) Number(path string) (int64, error) {
	b, err := t.Reader.ReadRecord(path)
	if err != nil {
		return 0, err
	}
	return parseNumber(b)
}

func parseNumber(b []byte) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err == nil && n < 0 {
		return 0, strconv.ErrRange
	}
	return n, err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// LevelPath is the path of a level in its hierarchy.
func LevelPath(base, dir string) string {
	if path := strings.TrimPrefix(dir, base); path != "" {
		return path
	}
	return "/"
}

// Keyed decodes lines of a name and a number, as of cpu.stat; what is no such
// line is passed over.
func Keyed(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range bytes.Lines(b) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// Paths are the cgroups of one process: by the controllers of a v1 hierarchy
// as /proc/PID/cgroup lists them ("cpu,cpuacct"), and by "" that of the unified
// hierarchy, v2's.
type Paths map[string]string

// ParsePaths decodes /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1, "0::/path"
// for v2. What is no such line is passed over.
func ParsePaths(b []byte) Paths {
	m := Paths{}
	for line := range bytes.Lines(b) {
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			m[parts[1]] = parts[2]
		}
	}
	return m
}

// Main is the cgroup by which a person knows the process: where a service
// manager has put it.
func (m Paths) Main() string {
	for _, name := range []string{"", "name=systemd"} {
		if p, ok := m[name]; ok && p != "/" {
			return p
		}
	}
	for list, p := range m {
		if p != "/" && HasController(list, "cpu") {
			return p
		}
	}
	return "/"
}

// Of returns the v1 hierarchy that has a controller.
func (m Paths) Of(controller string) (list, path string, ok bool) {
	for list, path := range m {
		if HasController(list, controller) {
			return list, path, true
		}
	}
	return "", "", false
}

// HasController reports whether a list of v1 controllers holds one.
func HasController(list, controller string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == controller {
			return true
		}
	}
	return false
}

// Tree finds cgroups below /sys/fs/cgroup. Not for several goroutines at
// once.
type Tree struct {
	ProcFS, Root string // root is /sys/fs/cgroup
	Reader       proc.Reader
	unified      string // where v2's hierarchy is mounted, "" while not found
}

// NewTree returns the cgroups below fs/cgroup of sysfs, of the processes below
// procfs.
func NewTree(procfs, sysfs string) Tree {
	return Tree{ProcFS: procfs, Root: filepath.Join(sysfs, "fs/cgroup")}
}

// Of returns the cgroups of a process.
func (t *Tree) Of(pid int) (Paths, error) {
	b, err := t.Reader.ReadRecord(proc.Path(t.ProcFS, pid, "cgroup"))
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
		case strings.HasSuffix(path, " (deleted)"):
			return nil, fmt.Errorf("look at the cgroup of pid %d: %w", pid, fs.ErrNotExist) // it has ended, and its cgroup after it
		}
	}
	return m, nil
}

// outside returns the path from the root of the hierarchy of a cgroup that is
// outside plegd's cgroup namespace, as the runtime's is for a pod that is not
// privileged. The kernel says where it lies from there ("/../../system.slice/x"),
// and not how deep that is. If it is in another branch from the root on, the rest
// is the path; whether it is, its own list of processes tells.
func (t *Tree) outside(m Paths, list string, pid int) (string, error) {
	path := m[list]
	rest := path
	for strings.HasPrefix(rest, "/..") && (len(rest) == 3 || rest[3] == '/') {
		rest = rest[3:]
	}
	controller, _, _ := strings.Cut(list, ",")
	if base, _, _ := t.Base(m, controller); base != "" {
		// Some hundred shims may stand in it, 11 bytes each.
		b, err := t.Reader.Read(base + rest + "/cgroup.procs")
		if err == nil {
			for line := range bytes.Lines(b) {
				if string(bytes.TrimSpace(line)) == strconv.Itoa(pid) {
					return "/" + strings.TrimPrefix(rest, "/"), nil
				}
			}
		}
	}
	return "", fmt.Errorf("look at the cgroup of pid %d: %s is outside plegd's cgroup namespace, and %s/cgroup.procs below %s does not hold it; plegd needs the node's /sys, and its PIDs", pid, path, rest, t.Root)
}

// Base returns where the hierarchy of a controller is mounted, and the path of
// the cgroup in it; "" for neither.
func (t *Tree) Base(m Paths, controller string) (base, path string, v2 bool) {
	if controller != "" {
		if list, path, ok := m.Of(controller); ok {
			for _, name := range []string{list, controller} {
				if base := t.Root + "/" + strings.TrimPrefix(name, "name="); isDir(base) {
					return base, path, false
				}
			}
			return "", "", false
		}
	}
	path, ok := m[""]
	if !ok {
		return "", "", true
	}
	if t.unified == "" {
		for _, base := range []string{t.Root, t.Root + "/unified"} {
			if _, err := os.Stat(base + "/cgroup.controllers"); err == nil {
				t.unified = base
				break
			}
		}
	}
	if t.unified == "" {
		return "", "", true
	}
	return t.unified, path, true
}

// Dir returns the directory of the cgroup for a controller, "" when there is
// none: in its v1 hierarchy, else in the unified one, which is also what "" asks
// for.
func (t *Tree) Dir(m Paths, controller string) (dir string, v2 bool) {
	base, path, v2 := t.Base(m, controller)
	if base == "" {
		return "", v2
	}
	return base + strings.TrimSuffix(path, "/"), v2
}

// Up goes from the directory of the cgroup to the root of its hierarchy.
func (t *Tree) Up(m Paths, controller string) iter.Seq[string] {
	return func(yield func(string) bool) {
		base, path, _ := t.Base(m, controller)
		if base == "" {
			return
		}
		for path = strings.TrimSuffix(path, "/"); yield(base + path); {
			i := strings.LastIndexByte(path, '/')
			if i < 0 {
				return
			}
			path = path[:i]
		}
	}
}

// Shows reports whether any of the cgroups is there.
func (t *Tree) Shows(m Paths) bool {
	for list := range m {
		name, _, _ := strings.Cut(list, ",")
		if dir, _ := t.Dir(m, name); dir != "" && isDir(dir) {
			return true
		}
	}
	return false
}
