package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// quotaWindow is the time over which a quota is read: more than its longest period.
	quotaWindow = 1100 * time.Millisecond
	// nearLimit is the share of a memory limit from which it holds tasks up.
	nearLimit = 0.95
)

// throttled is the wait of a process whose cgroup has a CPU quota that takes the CPU from
// it most of the time; ok is false for any other process.
func (f *waiting) throttled(ctx context.Context) (out wait, ok bool) {
	groups, err := f.tree.Of(f.pid)
	before := map[string]node.CPUStat{}
	for dir := range f.tree.Up(groups, "cpu") {
		if s, ok := node.ReadCPUStat(dir); ok && node.HasQuota(dir) {
			before[dir] = s
		}
	}
	if err != nil || len(before) == 0 || !sleep(ctx, quotaWindow) {
		return wait{}, false
	}
	for dir, path := range f.tree.Up(groups, "cpu") { // the topmost comes last
		now, _ := node.ReadCPUStat(dir)
		b, had := before[dir]
		periods, took := now.Periods-b.Periods, now.Throttled-b.Throttled
		if had && node.HasQuota(dir) && took > 0 && 2*took >= periods {
			out, ok = cgroupWait(path, health.LinkThrottled, "its CPU quota holds it up",
				fmt.Sprintf("the quota took the CPU away in %d of %d periods", took, periods)), true
		}
	}
	return out, ok
}

// memoryWait adds the wait of a thread held by a memory limit: of the levels the one that
// is nearest to its limit.
func (f *waiting) memoryWait(t thread) {
	out := wait{
		key: "memory", state: health.LinkMemory, unknown: "no level of its cgroup that can be read is near its limit",
		evidence: fmt.Sprintf("thread %d in D in %s: the memory limit of its cgroup", t.PID, t.channel),
	}
	groups, _ := f.tree.Of(f.pid) // of nothing no level is near a limit
	for _, files := range [][]string{
		{"memory.usage_in_bytes", "memory.limit_in_bytes"}, {"memory.current", "memory.high", "memory.max"},
	} {
		u := f.tree.Fullest(groups, "memory", files[0], files[1:]...)
		if u.Limit > 0 && float64(u.Used)/float64(u.Limit) >= nearLimit {
			how := fmt.Sprintf("%d of %d bytes (%s)", u.Used, u.Limit, u.File)
			out = cgroupWait(u.Path, health.LinkMemory, out.evidence, how)
		}
	}
	f.add(out)
}

// cgroupWait is that of a process that its cgroup holds up.
func cgroupWait(path string, state health.LinkState, evidence, how string) wait {
	link := health.Link{Kind: health.KindCgroup, Name: path, State: state, Evidence: how}
	return wait{key: "cgroup " + path, state: state, evidence: evidence, link: link}
}
