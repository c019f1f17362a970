package evidence

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroups are the cgroups of one process: by the controllers of a v1 hierarchy
// as /proc/PID/cgroup lists them ("cpu,cpuacct"), and by "" that of the unified
// hierarchy, v2's.
type cgroups map[string]string

// parseCgroups decodes /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1, "0::/path"
// for v2. What is no such line is passed over.
func parseCgroups(b []byte) cgroups {
	m := cgroups{}
	for line := range bytes.Lines(b) {
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			m[parts[1]] = parts[2]
		}
	}
	return m
}

// path is the cgroup by which a person knows the process: where a service
// manager has put it.
func (m cgroups) path() string {
	for _, name := range []string{"", "name=systemd"} {
		if p, ok := m[name]; ok && p != "/" {
			return p
		}
	}
	for list, p := range m {
		if p != "/" && hasController(list, "cpu") {
			return p
		}
	}
	return "/"
}

// of returns the v1 hierarchy that has a controller.
func (m cgroups) of(controller string) (list, path string, ok bool) {
	for list, path := range m {
		if hasController(list, controller) {
			return list, path, true
		}
	}
	return "", "", false
}

func hasController(list, controller string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == controller {
			return true
		}
	}
	return false
}

// cgroupTree finds cgroups below /sys/fs/cgroup. Not for several goroutines at
// once.
type cgroupTree struct {
	procfs, root string // root is /sys/fs/cgroup
	reader       procReader
	unified      string // where v2's hierarchy is mounted, "" while not found
}

func newCgroupTree(procfs, sysfs string) cgroupTree {
	return cgroupTree{procfs: procfs, root: filepath.Join(sysfs, "fs/cgroup")}
}

// of returns the cgroups of a process.
func (t *cgroupTree) of(pid int) (cgroups, error) {
	b, err := t.reader.read(pidPath(t.procfs, pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	m := parseCgroups(b)
	for list, path := range m {
		switch {
		case path == "/.." || strings.HasPrefix(path, "/../"):
			if m[list], err = t.outside(m, list, pid); err != nil {
				return nil, err
			}
		case strings.HasSuffix(path, " (deleted)"):
			return nil, errNoProcess // it has ended, and its cgroup after it
		}
	}
	return m, nil
}

// outside returns the path from the root of the hierarchy of a cgroup that is
// outside plegd's cgroup namespace, as the runtime's is for a pod that is not
// privileged. The kernel says where it lies from there ("/../../system.slice/x"),
// and not how deep that is. If it is in another branch from the root on, the rest
// is the path; whether it is, its own list of processes tells.
func (t *cgroupTree) outside(m cgroups, list string, pid int) (string, error) {
	path := m[list]
	rest := path
	for strings.HasPrefix(rest, "/..") && (len(rest) == 3 || rest[3] == '/') {
		rest = rest[3:]
	}
	controller, _, _ := strings.Cut(list, ",")
	if base, _, _ := t.base(m, controller); base != "" {
		// Some hundred shims may stand in it, 11 bytes each.
		b, err := t.reader.read(base + rest + "/cgroup.procs")
		if err == nil {
			for line := range bytes.Lines(b) {
				if string(bytes.TrimSpace(line)) == strconv.Itoa(pid) {
					return "/" + strings.TrimPrefix(rest, "/"), nil
				}
			}
		}
	}
	return "", fmt.Errorf("look at the cgroup of pid %d: %s is outside plegd's cgroup namespace, and %s/cgroup.procs below %s does not hold it; plegd needs the node's /sys, and its PIDs", pid, path, rest, t.root)
}

// base returns where the hierarchy of a controller is mounted, and the path of
// the cgroup in it; "" for neither.
func (t *cgroupTree) base(m cgroups, controller string) (base, path string, v2 bool) {
	if controller != "" {
		if list, path, ok := m.of(controller); ok {
			for _, name := range []string{list, controller} {
				if base := t.root + "/" + strings.TrimPrefix(name, "name="); isDir(base) {
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
		for _, base := range []string{t.root, t.root + "/unified"} {
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

// dir returns the directory of the cgroup for a controller, "" when there is
// none: in its v1 hierarchy, else in the unified one, which is also what "" asks
// for.
func (t *cgroupTree) dir(m cgroups, controller string) (dir string, v2 bool) {
	base, path, v2 := t.base(m, controller)
	if base == "" {
		return "", v2
	}
	return base + strings.TrimSuffix(path, "/"), v2
}

// up goes from the directory of the cgroup to the root of its hierarchy.
func (t *cgroupTree) up(m cgroups, controller string) iter.Seq[string] {
	return func(yield func(string) bool) {
		base, path, _ := t.base(m, controller)
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

// shows tells whether any of the cgroups is there.
func (t *cgroupTree) shows(m cgroups) bool {
	for list := range m {
		name, _, _ := strings.Cut(list, ",")
		if dir, _ := t.dir(m, name); dir != "" && isDir(dir) {
			return true
		}
	}
	return false
}

// frozen tells whether a process in these cgroups is frozen, and by which.
func (t *cgroupTree) frozen(m cgroups) (path string, frozen bool) {
	if path, frozen := t.frozenV1(m); frozen {
		return path, true
	}
	return t.frozenV2(m)
}

// frozenV1 goes by freezer.state, which counts what is frozen above. FREEZING is
// what it says as long as one of the processes waits for a disk: the others
// stand. A process that is frozen so looks like one in D.
func (t *cgroupTree) frozenV1(m cgroups) (path string, frozen bool) {
	if dir, v2 := t.dir(m, "freezer"); dir != "" && !v2 {
		if b, err := t.reader.read(dir + "/freezer.state"); err == nil {
			if s := string(bytes.TrimSpace(b)); s == "FROZEN" || s == "FREEZING" {
				_, path, _ := m.of("freezer")
				return path, true
			}
		}
	}
	return "", false
}

// frozenV2 goes by cgroup.events, of the cgroup or one above it. A process that
// is frozen so looks asleep.
func (t *cgroupTree) frozenV2(m cgroups) (path string, frozen bool) {
	base, _, _ := t.base(m, "")
	for dir := range t.up(m, "") {
		if b, err := t.reader.read(dir + "/cgroup.events"); err == nil && keyed(b)["frozen"] == 1 {
			return strings.TrimPrefix(dir, base), true
		}
	}
	return "", false
}
