package cgroup

// noLimit is from where a limit of v1 means none: for memory the kernel writes
// the largest number of pages, in bytes.
const noLimit = 1 << 60

// Fullest returns what is used of a limit, and the limit: of those at a cgroup
// and above it the one that will be met first. Where there is none, what the
// cgroup uses and 0.
func (t *Tree) Fullest(m Paths, controller, current, limit string) (used, most int64) {
	own, first := int64(0), true
	for dir := range t.Up(m, controller) {
		n, err := t.Number(dir + "/" + current)
		if err != nil {
			continue // the root of a hierarchy counts nothing
		}
		if first {
			own, first = n, false
		}
		l, err := t.Number(dir + "/" + limit)
		if err != nil || l >= noLimit || l <= 0 {
			continue // "max" is no number
		}
		if most == 0 || float64(n)*float64(most) > float64(used)*float64(l) {
			used, most = n, l
		}
	}
	if most == 0 {
		return own, 0
	}
	return used, most
}

// Refaults adds up what memory.stat says under some names.
func (t *Tree) Refaults(dir string, names ...string) (n uint64) {
	b, err := t.Reader.ReadRecord(dir + "/memory.stat")
	if err != nil {
		return 0
	}
	k := Keyed(b)
	for _, name := range names {
		n += k[name]
	}
	return n
}

// Limit reads a limit; 0 for none.
func (t *Tree) Limit(path string) int64 {
	n, err := t.Number(path)
	if err != nil || n >= noLimit {
		return 0 // "max" is no number
	}
	return max(n, 1) // a limit of 0 is one
}
