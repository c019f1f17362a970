package cgroup

import (
	"bytes"
	"strings"
)

// Frozen reports whether a process in these cgroups is frozen, and by which.
func (t *Tree) Frozen(m Paths) (path string, frozen bool) {
	if path, frozen := t.FrozenV1(m); frozen {
		return path, true
	}
	return t.FrozenV2(m)
}

// FrozenV1 goes by freezer.state, which counts what is frozen above. FREEZING is
// what it says as long as one of the processes waits for a disk: the others
// stand. A process that is frozen so looks like one in D.
func (t *Tree) FrozenV1(m Paths) (path string, frozen bool) {
	if dir, v2 := t.Dir(m, "freezer"); dir != "" && !v2 {
		if b, err := t.Reader.ReadRecord(dir + "/freezer.state"); err == nil {
			if s := string(bytes.TrimSpace(b)); s == "FROZEN" || s == "FREEZING" {
				_, path, _ := m.Of("freezer")
				return path, true
			}
		}
	}
	return "", false
}

// FrozenV2 goes by cgroup.events, of the cgroup or one above it. A process that
// is frozen so looks asleep.
func (t *Tree) FrozenV2(m Paths) (path string, frozen bool) {
	base, _, _ := t.Base(m, "")
	for dir := range t.Up(m, "") {
		if b, err := t.Reader.ReadRecord(dir + "/cgroup.events"); err == nil && Keyed(b)["frozen"] == 1 {
			return strings.TrimPrefix(dir, base), true
		}
	}
	return "", false
}
