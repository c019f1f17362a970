package cgroup

import "bytes"

// Frozen reports whether a process in these cgroups is frozen, and by which level:
// the topmost one that has to be thawed. To thaw a level below a frozen one has no
// effect.
func (t *Tree) Frozen(m Paths) (path string, frozen bool) {
	if path, frozen := t.FrozenV1(m); frozen {
		return path, true
	}
	return t.FrozenV2(m)
}

// FrozenV1 reads freezer.state, which includes what is frozen above, and looks for the
// topmost level with freezer.self_freezing. FREEZING lasts while one of the processes
// waits for a disk; the others are frozen. Such a process is in state D.
func (t *Tree) FrozenV1(m Paths) (path string, frozen bool) {
	base, path, v2 := t.Base(m, "freezer")
	if base == "" || v2 {
		return "", false
	}
	first := true
	for dir := range t.Up(m, "freezer") {
		if first {
			first = false
			b, err := t.Reader.ReadRecord(dir + "/freezer.state")
			if s := string(bytes.TrimSpace(b)); err != nil || s != "FROZEN" && s != "FREEZING" {
				return "", false
			}
		}
		if n, err := t.Number(dir + "/freezer.self_freezing"); err == nil && n == 1 {
			path = LevelPath(base, dir)
		}
	}
	return path, true
}

// FrozenV2 reads cgroup.events, of the cgroup or one above it, and looks for the
// topmost level with cgroup.freeze. A process that is frozen so looks asleep.
func (t *Tree) FrozenV2(m Paths) (path string, frozen bool) {
	base, _, _ := t.Base(m, "")
	for dir := range t.Up(m, "") {
		if b, err := t.Reader.ReadRecord(dir + "/cgroup.events"); err == nil && Keyed(b)["frozen"] == 1 {
			path, frozen = LevelPath(base, dir), true
		}
		if n, err := t.Number(dir + "/cgroup.freeze"); frozen && err == nil && n == 1 {
			path = LevelPath(base, dir)
		}
	}
	return path, frozen
}
