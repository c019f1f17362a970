package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// cacheShare is the percentage of a memory limit from which page cache may make room where memory is refused.
const cacheShare = 10

// leastLimits are soft limits below which a Go program, as shims and runc are, cannot start on 64 bits; children inherit
// them from the runtime.
var leastLimits = []struct {
	name, setting string // in /proc/PID/limits and in a unit
	kib           int
}{
	{"stack size", "LimitSTACK", 64},        // runtime/asm_amd64.s, rt0_go: the first stack
	{"address space", "LimitAS", 512 << 10}, // runtime/mpagealloc_64bit.go: the last level of summaries alone
	{"data size", "LimitDATA", 64 << 10},    // runtime/malloc.go, heapArenaBytes
}

// lowLimits describes the limits of the runtime's that are lower, "" for none.
func (p *pass) lowLimits() (text string) {
	for _, least := range leastLimits {
		limit, err := proc.SoftLimit(p.Table.ProcFS, p.started.runtime.PID, least.name)
		p.unread.Add(limitsOfRuntime, err)
		if err == nil && limit>>10 < least.kib {
			text += fmt.Sprintf("; its limit of the %s is %d KiB (%s), children inherit it, and Go programs need %d KiB: that may be why",
				least.name, limit>>10, least.setting, least.kib)
		}
	}
	return text
}

// exhausted returns the topmost cgroup, of those that a new pod shares with the runtime or with other pods, that is at a
// limit now; ok is false where none is.
func (p *pass) exhausted(ctx context.Context) (link facts.Link, ok bool) {
	files := p.tree.Files
	shared := p.sharedLevels(ctx)
	m := &p.started.memory
	m.compare(files, p.Table.ProcFS, slices.Collect(maps.Keys(shared)), p.moment)
	for _, dir := range slices.SortedFunc(maps.Keys(shared), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}) {
		limit := cmp.Or(limitReached(files, dir), m.limitReached(files, dir, p.moment))
		if limit != "" {
			place := "/sys" + strings.TrimPrefix(dir, p.SysFS) + "/"
			return facts.Link{Kind: facts.KindCgroup, Name: shared[dir], State: facts.LinkFailing, Evidence: place + limit}, true
		}
	}
	return facts.Link{}, false
}

// readOnlyCgroups returns a hierarchy of cgroups that the runtime has mounted read-only, so that no container can be started;
// nil for none.
func (p *pass) readOnlyCgroups(ctx context.Context) *facts.Link {
	mounts, err := p.Table.Mounts(ctx, p.started.runtime.PID)
	p.unread.Add(mountTable, err)
	for _, m := range mounts {
		seen, _ := proc.MountOf(mounts, m.Point) // another one may cover it
		isHierarchy := m.Type == "cgroup" || m.Type == "cgroup2"
		if isHierarchy && seen.ID == m.ID && slices.Contains(strings.Split(m.Options, ","), "ro") {
			return &facts.Link{
				Kind: facts.KindMount, Name: m.Point, State: facts.LinkFailing, Fingerprint: facts.FingerprintWord(m.Type),
				Evidence: fmt.Sprintf("%s on %s is mounted read-only", m.Type, m.Point),
			}
		}
	}
	return nil
}

// levels are cgroups of processes: which of them a new pod shares is found by the pods that are there.
type levels struct {
	tree     proc.CgroupTree
	firstPod map[string]string // by directories
	shared   map[string]string // paths by directories
}

// sharedLevels returns the paths of the runtime's cgroup, of those that hold several pods, and of those above, by their
// directories.
func (p *pass) sharedLevels(ctx context.Context) map[string]string {
	l := &levels{tree: p.tree, firstPod: map[string]string{}, shared: map[string]string{}}
	l.add(p.started.runtime.PID, "")
	all := p.readProcesses(ctx, tableAge)
	if all == nil {
		return l.shared
	}
	for _, shim := range p.shims {
		last, isServed := p.served[shim.ID()]
		if !isServed || last.entry.Pod() == "" {
			continue
		}
		l.add(shim.PID, last.entry.Pod())
		for _, process := range all.Children(shim.PID) {
			l.add(process.PID, last.entry.Pod())
		}
	}
	return l.shared
}

// add adds the cgroups of a process of a pod, or of the runtime: "".
func (l *levels) add(pid int, pod string) {
	groups, err := l.tree.Of(pid)
	if err != nil { // it has ended, or its cgroups are not visible
		return
	}
	for _, controller := range []string{"pids", "memory", ""} {
		for dir, path := range l.tree.Up(groups, controller) {
			first := cmp.Or(l.firstPod[dir], pod)
			l.firstPod[dir] = first
			if first != pod || pod == "" {
				l.shared[dir] = path
			}
		}
	}
}

// limitReached describes the limit of a cgroup's directory that leaves no room for another pod, "" for none.
func limitReached(files proc.Files, dir string) string {
	used := files.Number(dir, "pids.current")
	limit := files.Limit(dir, "pids.max")
	if limit > 0 && used >= limit {
		return fmt.Sprintf("pids.max is %d, pids.current %d", limit, used)
	}
	groups := int64(files.Counters(dir, "cgroup.stat")["nr_descendants"]) //nolint:gosec // far below 2^63
	limit = files.Limit(dir, "cgroup.max.descendants")
	if limit > 0 && groups >= limit {
		return fmt.Sprintf("cgroup.max.descendants is %d, and it has %d", limit, groups)
	}
	return ""
}

// memoryLimits are the memory limits for which the kernel has ended processes since starts fail. To be near a limit proves
// nothing: page cache fills it.
type memoryLimits struct {
	refusals map[string]uint64    // by directories, at the last look
	kills    uint64               // of the whole node, at the last look
	grownAt  map[string]time.Time // by directories, when the limit was last seen to end a process
}

// compare compares the counters of the directories with those of the look before.
func (m *memoryLimits) compare(files proc.Files, procfs string, dirs []string, moment time.Time) {
	isFirst := m.refusals == nil
	if isFirst {
		m.refusals = map[string]uint64{}
		m.grownAt = map[string]time.Time{}
	}
	kills := files.Counters(procfs, "vmstat")["oom_kill"]
	hasKilled := !isFirst && kills > m.kills
	m.kills = kills
	for _, dir := range dirs {
		events := files.Counters(dir, "memory.events.local")
		refusals, isV2 := events["oom"]
		if !isV2 {
			refusals = uint64(max(0, files.Number(dir, "memory.failcnt"))) //nolint:gosec // not below 0
		}
		last, isKnown := m.refusals[dir]
		m.refusals[dir] = refusals
		hasGrown := isKnown && refusals > last
		// v1 also counts the refusals for which page cache made room, and the kills of a cgroup that is gone are the node's.
		if hasGrown && (isV2 || hasKilled && !hasCache(files, dir)) {
			m.grownAt[dir] = moment
		}
	}
}

// hasCache reports whether page cache is a part of a directory's memory that is worth a refusal (v1).
func hasCache(files proc.Files, dir string) bool {
	stat := files.Counters(dir, "memory.stat")
	cache := int64(stat["total_inactive_file"] + stat["total_active_file"]) //nolint:gosec // far below 2^63
	return cache > files.Limit(dir, "memory.limit_in_bytes")/100*cacheShare
}

// limitReached describes the memory limit of a directory, "" where it ends no processes.
func (m *memoryLimits) limitReached(files proc.Files, dir string, moment time.Time) string {
	grown, hasGrown := m.grownAt[dir]
	if !hasGrown || moment.Sub(grown) > startsOver {
		return ""
	}
	name := "memory.max"
	limit := files.Limit(dir, name)
	if limit == 0 {
		name = "memory.limit_in_bytes"
		limit = files.Limit(dir, name)
	}
	return fmt.Sprintf("%s is %d, and the kernel has ended processes for it since starts fail", name, limit)
}
