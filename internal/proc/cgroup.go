package proc

import (
	"cmp"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Cgroups are the cgroups of one process: by the controllers of a v1 hierarchy as
// /proc/PID/cgroup lists them ("cpu,cpuacct"), and by "" that of v2's.
type Cgroups map[string]string

// ParseCgroups decodes /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1, "0::/path"
// for v2. An invalid line is left out.
func ParseCgroups(b []byte) Cgroups {
	m := Cgroups{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			m[parts[1]] = parts[2]
		}
	}
	return m
}

// Main is the cgroup by which a person knows the process: where a service manager put it.
func (m Cgroups) Main() string {
	_, cpu := m.v1("cpu")
	for _, p := range []string{m[""], m["name=systemd"], cpu} {
		if p != "" && p != "/" {
			return p
		}
	}
	return "/"
}

// v1 returns the v1 hierarchy that has a controller, and the path in it; "" for none.
func (m Cgroups) v1(controller string) (list, path string) {
	for list, path := range m {
		if controller != "" && slices.Contains(strings.Split(list, ","), controller) {
			return list, path
		}
	}
	return "", ""
}

// CgroupTree finds cgroups below /sys/fs/cgroup, and reads their files.
type CgroupTree struct {
	Files

	procfs, root string
}

// NewCgroupTree returns the cgroups below fs/cgroup of sysfs, of the processes below procfs.
func NewCgroupTree(procfs, sysfs string, files Files) CgroupTree {
	return CgroupTree{Files: files, procfs: procfs, root: filepath.Join(sysfs, "fs/cgroup")}
}

// Of returns the cgroups of a process. It is an error where none of them is below the root:
// plegd then sees another cgroup namespace, or another /sys, than the node's.
func (t CgroupTree) Of(pid int) (Cgroups, error) {
	b, err := ReadFile(Path(t.procfs, pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	m := ParseCgroups(b)
	shown := false
	for list, path := range m {
		if strings.HasSuffix(path, " (deleted)") { // it has ended, and its cgroup after it
			return nil, fmt.Errorf("look at the cgroup of pid %d: %w", pid, fs.ErrNotExist)
		}
		m[list] = above.ReplaceAllString(path, "/")
		if shown && m[list] == path {
			continue
		}
		isShown, err := t.shows(m, list, path, pid)
		if err != nil {
			return nil, err
		}
		shown = shown || isShown
	}
	if !shown {
		return m, fmt.Errorf("look at cgroup %s of pid %d: it is not below %s; "+
			"plegd needs the node's /sys and its cgroup namespace", m.Main(), pid, t.root)
	}
	return m, nil
}

// shows reports whether the cgroup of a hierarchy is below the root. path is as the kernel gives it: one from outside plegd's
// cgroup namespace must hold the process.
func (t CgroupTree) shows(m Cgroups, list, path string, pid int) (bool, error) {
	controller, _, _ := strings.Cut(list, ",")
	base, _ := t.Base(m, controller)
	if m[list] != path && !t.holds(base+m[list], pid) {
		return false, fmt.Errorf("look at the cgroup of pid %d: %s is outside plegd's cgroup namespace, and "+
			"%s/cgroup.procs below %s does not hold it; plegd needs the node's /sys, and its PIDs",
			pid, path, m[list], t.root)
	}
	return base != "" && exists(base+m[list]), nil
}

// above is the beginning of the path of a cgroup outside plegd's cgroup namespace, as the
// runtime's is for a pod that is not privileged: the kernel gives it relative to that
// namespace ("/../../system.slice/x"). If it is in another branch from the root on, the rest
// is the path, and its list of processes holds the process.
var above = regexp.MustCompile(`^(/\.\.)+(/|$)`)

// holds reports whether a process is in the cgroup of a directory.
func (t CgroupTree) holds(dir string, pid int) bool {
	processes := strings.Fields(t.Text(dir, "cgroup.procs"))
	return slices.Contains(processes, strconv.Itoa(pid))
}

// exists reports whether a path is there, even if it may not be read.
func exists(path string) bool {
	_, err := os.Stat(path)
	return OutcomeOf(err) != Absent
}

// Base returns where the hierarchy of a controller is mounted, and the path of the cgroup
// in it; "" for neither. The v1 hierarchy comes before the unified one, which is also that
// of the controller "".
func (t CgroupTree) Base(m Cgroups, controller string) (base, path string) {
	list, path := m.v1(controller)
	names := []string{list, controller}
	file := "" // the directory itself
	if path == "" {
		path = m[""]
		names = []string{"", "unified"}
		file = "cgroup.controllers"
	}
	for _, name := range names {
		base = filepath.Join(t.root, strings.TrimPrefix(name, "name="))
		if path != "" && exists(filepath.Join(base, file)) {
			return base, path
		}
	}
	return "", ""
}

// Up goes from the cgroup to the root of a controller's hierarchy: directories and paths.
func (t CgroupTree) Up(m Cgroups, controller string) iter.Seq2[string, string] {
	return func(yield func(dir, path string) bool) {
		base, path := t.Base(m, controller)
		if base == "" {
			return
		}
		for path = strings.TrimSuffix(path, "/"); yield(base+path, cmp.Or(path, "/")) && path != ""; {
			path = path[:strings.LastIndexByte(path, '/')]
		}
	}
}

// Service returns the systemd service of the cgroup, the innermost one; "" for none.
func (m Cgroups) Service() string {
	service := ""
	for part := range strings.SplitSeq(m.Main(), "/") {
		if strings.HasSuffix(part, ".service") {
			service = part
		}
	}
	return service
}

// Frozen reports whether a process in these cgroups is frozen, and by which level: the
// topmost one that has to be thawed. To thaw a level below a frozen one has no effect. In
// v1 FREEZING lasts while one of the processes waits for a disk: the others are frozen.
func (t CgroupTree) Frozen(m Cgroups) (path string, frozen bool) {
	controllers := []string{""}
	if hierarchy, _ := m.v1("freezer"); hierarchy != "" {
		controllers = []string{"freezer", ""}
	}
	for _, controller := range controllers {
		for dir, level := range t.Up(m, controller) {
			state := strings.TrimSpace(t.Text(dir, "freezer.state")) // v1
			if state == "FROZEN" || state == "FREEZING" || t.Counters(dir, "cgroup.events")["frozen"] == 1 ||
				frozen && t.Number(dir, "cgroup.freeze") == 1 { // a process beside it waits for a disk
				path = level
				frozen = true
			}
		}
	}
	return path, frozen
}

// IsFrozen reports whether a process is in a frozen cgroup. The error is why its cgroups are not known; it is false then.
func (t CgroupTree) IsFrozen(pid int) (bool, error) {
	m, err := t.Of(pid)
	if err != nil {
		return false, err
	}
	_, frozen := t.Frozen(m)
	return frozen, nil
}

// Usage is what a level of a cgroup uses, and its limit: 0 for none.
type Usage struct {
	Path, File  string // of the level, and of the limit
	Used, Limit int64
}

// Fullest returns the level, of a cgroup and those above it, that is nearest to one of its
// limits. Where none has one, it is the cgroup itself.
func (t CgroupTree) Fullest(m Cgroups, controller, current string, limits ...string) (out Usage) {
	for dir, path := range t.Up(m, controller) {
		used := t.Number(dir, current)
		if used < 0 {
			continue // the root of a hierarchy counts nothing
		}
		if out.Path == "" {
			out = Usage{Path: path, Used: used}
		}
		for _, file := range limits {
			l := t.Limit(dir, file)
			if l > 0 && (out.Limit == 0 || float64(used)*float64(out.Limit) > float64(out.Used)*float64(l)) {
				out = Usage{Path: path, File: file, Used: used, Limit: l}
			}
		}
	}
	return out
}
