package evidence

import (
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/health"
)

// memoryWindow is how many samples back the events of a memory limit are compared
// with: one that holds its tasks up for two seconds at a time may count nothing
// in one of them.
const memoryWindow = 5

// memoryTooOld is the age from which a sample is not compared with where there is
// a younger one: while all is well, samples are far apart.
const memoryTooOld = memoryWindow * time.Second

// memoryCounts are the counters of one level, all since it was made.
type memoryCounts struct {
	high, max, kills, refaults uint64
}

// memorySample are the counters of every level, by directory, at a moment.
type memorySample struct {
	at     time.Time
	levels map[string]memoryCounts
}

// memoryWatch follows the memory limits at a cgroup and above it.
type memoryWatch struct {
	before []memorySample // at most memoryWindow, the oldest first
}

// look fills in the levels that limit the cgroup's memory.
func (w *memoryWatch) look(tree *cgroup.Tree, m cgroup.Paths, v *health.Cgroup) {
	base, _, v2 := tree.Base(m, "memory")
	now := memorySample{at: v.At, levels: map[string]memoryCounts{}}
	for dir := range tree.Up(m, "memory") {
		l := health.MemoryLimit{Path: cgroup.LevelPath(base, dir)}
		var counts memoryCounts
		if v2 {
			counts = memoryV2(tree, dir, &l)
		} else {
			counts = memoryV1(tree, dir, &l)
		}
		if l.High == 0 && l.Max == 0 {
			continue
		}
		now.levels[dir] = counts
		w.compare(dir, now, &l)
		v.MemoryLimits = append(v.MemoryLimits, l)
	}
	w.before = append(w.before, now)
	w.before = w.before[max(0, len(w.before)-memoryWindow):]
}

// compare sets the increase of a level's counters since the oldest sample.
func (w *memoryWatch) compare(dir string, now memorySample, l *health.MemoryLimit) {
	counts := now.levels[dir]
	for i, sample := range w.before {
		before, ok := sample.levels[dir]
		younger := i+1 < len(w.before)
		if !ok || younger && now.at.Sub(sample.at) > memoryTooOld || !now.at.After(sample.at) || counts.behind(before) {
			continue // it is a new cgroup of the same name, or too long ago
		}
		l.HighEvents, l.MaxEvents, l.OOMKills = counts.high-before.high, counts.max-before.max, counts.kills-before.kills
		l.Refaults = float64(counts.refaults-before.refaults) / now.at.Sub(sample.at).Seconds()
		return
	}
}

// behind reports whether a counter of c is below that of b.
func (c memoryCounts) behind(b memoryCounts) bool {
	return c.high < b.high || c.max < b.max || c.kills < b.kills || c.refaults < b.refaults
}

// memoryV2 reads a level of the unified hierarchy. The events are those of the
// limits of this level only; memory.events, which counts those below it too, is
// read where there is no memory.events.local (Linux 5.2).
func memoryV2(t *cgroup.Tree, dir string, l *health.MemoryLimit) memoryCounts {
	l.High, l.Max = t.Limit(dir+"/memory.high"), t.Limit(dir+"/memory.max")
	if l.High == 0 && l.Max == 0 {
		return memoryCounts{}
	}
	l.Usage, _ = t.Number(dir + "/memory.current")
	b, err := t.Reader.ReadRecord(dir + "/memory.events.local")
	if err != nil {
		b, err = t.Reader.ReadRecord(dir + "/memory.events")
	}
	var c memoryCounts
	if err == nil {
		k := cgroup.Keyed(b)
		c.high, c.max, c.kills = k["high"], k["max"], k["oom_kill"]
	}
	c.refaults = t.Refaults(dir, "workingset_refault_anon", "workingset_refault_file", "workingset_refault")
	return c
}

// memoryV1 reads a level of v1's memory hierarchy.
func memoryV1(t *cgroup.Tree, dir string, l *health.MemoryLimit) memoryCounts {
	if l.Max = t.Limit(dir + "/memory.limit_in_bytes"); l.Max == 0 {
		return memoryCounts{}
	}
	l.Usage, _ = t.Number(dir + "/memory.usage_in_bytes")
	var c memoryCounts
	if n, err := t.Number(dir + "/memory.failcnt"); err == nil {
		c.max = uint64(n)
	}
	if b, err := t.Reader.ReadRecord(dir + "/memory.oom_control"); err == nil {
		k := cgroup.Keyed(b)
		l.OOM, c.kills = k["under_oom"] == 1, k["oom_kill"]
	}
	const refault = "total_workingset_refault"
	c.refaults = t.Refaults(dir, refault+"_anon", refault+"_file", refault)
	return c
}

// The weight that a cgroup has unless somebody changes it.
const (
	usualShares = 1024
	usualWeight = 100
)

// lowWeights returns the levels that have less than the usual CPU weight.
func lowWeights(t *cgroup.Tree, m cgroup.Paths) (out []health.CPUWeight) {
	base, _, v2 := t.Base(m, "cpu")
	file, usual := "/cpu.shares", usualShares
	if v2 {
		file, usual = "/cpu.weight", usualWeight
	}
	for dir := range t.Up(m, "cpu") {
		weight, err := t.Number(dir + file)
		if err != nil {
			continue // the root of v2 has none
		}
		if idle, err := t.Number(dir + "/cpu.idle"); err == nil && idle == 1 {
			weight = 0
		}
		if int(weight) < usual {
			out = append(out, health.CPUWeight{Path: cgroup.LevelPath(base, dir), Weight: int(weight), Usual: usual})
		}
	}
	return out
}

// cgroupPressure returns the pressure of the cgroup itself; nil where the kernel has
// none of a cgroup. v1 has it where a service manager uses v2's hierarchy beside
// it. That of a hierarchy's root is the whole node's.
func cgroupPressure(t *cgroup.Tree, m cgroup.Paths) *health.CgroupPressure {
	base, path, _ := t.Base(m, "")
	if base == "" || path == "/" {
		return nil
	}
	p := health.CgroupPressure{CPUSome: -1, MemorySome: -1, MemoryFull: -1, IOSome: -1}
	found := false
	for file, to := range map[string]struct{ some, full *float64 }{
		"cpu.pressure":    {some: &p.CPUSome},
		"memory.pressure": {some: &p.MemorySome, full: &p.MemoryFull},
		"io.pressure":     {some: &p.IOSome},
	} {
		b, err := t.Reader.ReadRecord(base + path + "/" + file)
		if err != nil {
			continue
		}
		some, full := cgroup.ParsePressure(b)
		found = found || some >= 0
		*to.some = some
		if to.full != nil {
			*to.full = full
		}
	}
	if !found {
		return nil
	}
	return &p
}
