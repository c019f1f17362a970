package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/health"
)

const (
	// starvedAfter is how long a thread must be runnable without a CPU.
	starvedAfter = time.Second
	// nearLimit is the share of a memory limit from which it holds tasks up.
	nearLimit = 0.95
)

// quota counts the periods in which the CPU quota of a cgroup has throttled it.
type quota struct {
	dir, path string
	throttled uint64
}

// quotas are those at a process's cgroup and above it, the topmost last.
func (w *Walker) quotas(pid int) (out []quota) {
	groups, err := w.tree.Of(pid)
	if err != nil {
		return nil
	}
	base, _, _ := w.tree.Base(groups, "cpu")
	for dir := range w.tree.Up(groups, "cpu") {
		b, err := w.reader.Read(dir + "/cpu.stat")
		if err != nil {
			continue
		}
		if s, ok := cgroup.ParseCPUStat(b); ok {
			out = append(out, quota{dir: dir, path: cgroup.LevelPath(base, dir), throttled: s.Throttled})
		}
	}
	return out
}

// runnable reports whether a thread is runnable and has not run.
func runnable(asleep []thread) bool {
	for _, t := range asleep {
		if t.state == 'R' {
			return true
		}
	}
	return false
}

// ranBetween is the CPU time of all threads between two looks.
func ranBetween(before, now *look) (sum time.Duration) {
	for tid, t := range now.threads {
		if b, ok := before.threads[tid]; ok && b.start == t.start && t.sched.Run > b.sched.Run {
			sum += time.Duration(t.sched.Run - b.sched.Run)
		}
	}
	return sum
}

// noCPU is the wait of a process with a thread that is runnable and gets no CPU.
func (w *Walker) noCPU(ctx context.Context, now, before *look) wait {
	if d := starvedAfter - now.at.Sub(before.at); d > 0 {
		if !sleep(ctx, d) {
			return wait{state: health.LinkUnknown, evidence: "a thread is runnable", unknown: "the time for it ran out"}
		}
		later := w.look(ctx, now.stat)
		if later == nil || !runnable(still(before, later)) {
			return wait{state: health.LinkRunning, evidence: "runs now and then"}
		}
		now = later
	}
	evidence := fmt.Sprintf("a thread has been runnable for %s without", now.at.Sub(before.at).Round(100*time.Millisecond))
	was := map[string]uint64{}
	for _, q := range before.quotas {
		was[q.dir] = q.throttled
	}
	out := wait{state: health.LinkStarved, evidence: evidence + " getting a CPU, and no quota holds it"}
	for _, q := range now.quotas {
		if b, ok := was[q.dir]; ok && q.throttled > b && w.tree.HasQuota(q.dir) {
			out = wait{state: health.LinkThrottled, evidence: evidence + " running", links: []health.Link{{
				Kind: health.KindCgroup, Name: clean(q.path), State: health.LinkThrottled,
				Evidence: fmt.Sprintf("its CPU quota held it up in %d periods meanwhile", q.throttled-b),
			}}}
		}
	}
	return out
}

// isMemoryChannel reports whether a thread in that kernel function waits because of
// its cgroup's memory limit.
func isMemoryChannel(channel string) bool {
	return in(channel, "mem_cgroup_", "__mem_cgroup_", "memory_high_", "try_charge", "obj_cgroup_charge", "try_to_free_mem_cgroup")
}

// memoryWait is that of a thread held by a memory limit: of the levels the one that
// is nearest to its limit.
func (w *Walker) memoryWait(p place) candidate {
	out := wait{
		state:    health.LinkMemory,
		evidence: fmt.Sprintf("thread %d in D in %s: the memory limit of its cgroup", p.tid, p.channel),
	}
	groups, err := w.tree.Of(p.pid)
	if err != nil {
		out.unknown = "its cgroup cannot be read"
		return candidate{"memory", out}
	}
	base, _, v2 := w.tree.Base(groups, "memory")
	usage, limits := "/memory.usage_in_bytes", []string{"/memory.limit_in_bytes"}
	if v2 {
		usage, limits = "/memory.current", []string{"/memory.high", "/memory.max"}
	}
	best, share := health.Link{}, 0.0
	for dir := range w.tree.Up(groups, "memory") {
		used, err := w.tree.Number(dir + usage)
		if err != nil {
			continue
		}
		for _, file := range limits {
			limit := w.tree.Limit(dir + file)
			if limit <= 0 || float64(used)/float64(limit) <= share {
				continue
			}
			share = float64(used) / float64(limit)
			best = health.Link{
				Kind: health.KindCgroup, Name: clean(cgroup.LevelPath(base, dir)), State: health.LinkMemory,
				Evidence: fmt.Sprintf("%d of %d bytes (%s)", used, limit, file[1:]),
			}
		}
	}
	if share < nearLimit {
		out.unknown = "no level of its cgroup is near its limit"
		return candidate{"memory", out}
	}
	out.links = []health.Link{best}
	return candidate{"memory " + best.Name, out}
}
