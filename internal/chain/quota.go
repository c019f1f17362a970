package chain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// quotaWindow is the time over which a quota is read: more than its longest period.
	quotaWindow = 1100 * time.Millisecond
	// quotaAge is how old what is known of a quota may be: the processes of one round share it.
	quotaAge = 2 * time.Second
)

// quota is what the CPU quotas of a cgroup, and of those above it, did at a moment.
type quota struct {
	read time.Time
	wait wait // zero where they hold nothing up
}

// throttled is the wait of the first one of some processes whose cgroup has a CPU quota that takes the CPU from
// it most of the time, which is next; ok is false where there is none.
func (f *waiting) throttled(pids ...int) (out wait, ok bool) {
	keys := f.readQuotas(pids)
	for i, pid := range pids {
		out = f.quotas[keys[i]].wait
		if out.state != "" {
			out.next = pid
			return out, true
		}
	}
	return wait{}, false
}

// readQuotas reads the quotas of the cgroups of some processes, of which nothing is known, all over the same time. It
// returns the key of each process's cgroup.
func (f *waiting) readQuotas(pids []int) (keys []string) {
	maps.DeleteFunc(f.quotas, func(_ string, q quota) bool { return time.Since(q.read) > quotaAge })
	tree, _ := f.cgroupsOf(f.pid, &f.unseen)
	unread := map[string]proc.Cgroups{}
	first := map[string]proc.CPUStat{}
	for _, pid := range pids {
		_, groups := f.cgroupsOf(pid, &f.unseen)
		base, path := tree.Base(groups, "cpu")
		key := base + path
		keys = append(keys, key)
		_, known := f.quotas[key]
		if !known {
			unread[key] = groups
			addQuotas(tree, groups, first)
		}
	}
	if len(first) > 0 {
		time.Sleep(quotaWindow)
	}
	for key, groups := range unread {
		f.quotas[key] = quota{wait: throttledSince(tree, groups, first), read: time.Now()}
	}
	return keys
}

// addQuotas adds what the CPU quotas of a cgroup, and of those above it, did until now, by their directories.
func addQuotas(tree proc.CgroupTree, groups proc.Cgroups, stats map[string]proc.CPUStat) {
	for dir := range tree.Up(groups, "cpu") {
		stat, ok := tree.CPUStat(dir)
		if ok && tree.HasQuota(dir) {
			stats[dir] = stat
		}
	}
}

// throttledSince is the wait for the topmost of some CPU quotas that took the CPU most of the time since then, zero where
// none did.
func throttledSince(tree proc.CgroupTree, groups proc.Cgroups, first map[string]proc.CPUStat) (out wait) {
	for dir, path := range tree.Up(groups, "cpu") { // the topmost comes last
		earlier, known := first[dir]
		later, _ := tree.CPUStat(dir)
		periods := later.Periods - earlier.Periods
		taken := later.Throttled - earlier.Throttled
		if known && tree.HasQuota(dir) && taken > 0 && 2*taken >= periods {
			out = cgroupWait(path, facts.LinkThrottled, "its CPU quota holds it up",
				fmt.Sprintf("the quota took the CPU away in %d of %d periods", taken, periods))
		}
	}
	return out
}

// starved returns the first one of some processes that is runnable and that a CPU quota holds up, 0 for none.
func (f *waiting) starved(pids []int) int {
	out, _ := f.throttled(without(pids, func(pid int) bool {
		threads, err := proc.ThreadStates(f.procfs, pid, maxThreads)
		return err != nil || !slices.ContainsFunc(threads, func(t proc.Process) bool { return t.State == 'R' })
	})...)
	return out.next
}

// endAtQuota ends the links from a place on at the CPU quota that holds up the last process of them which has not ended,
// where nothing else is known to hold it up. The quota holds up the processes before it as well that are in its cgroup: the
// chain leads from the first of them to it, and not by way of helpers, of which each runs for a moment only.
func (e *Explorer) endAtQuota(ctx context.Context, c *facts.Chain, start int) {
	last := e.lastAlive(c.Links[start:])
	if last == nil {
		return
	}
	f := &waiting{Explorer: e, pid: e.cgroupOwner(last.PID)}
	held, ok := f.throttled(f.pid)
	if !ok {
		return
	}
	kept := slices.Clone(c.Links[:start])
	for _, l := range c.Links[start:] {
		isHeld := l.PID != 0 && l.Kind != facts.KindRuntime && e.isBelow(l.PID, held.link.Name)
		switch {
		case l.State == facts.LinkEnded:
		case isHeld:
			if start > 0 && l.Kind == facts.KindHelper {
				e.replaceByShim(ctx, &l, held.link.Name)
			}
			l.State = held.state
			l.Evidence = held.evidence
			c.Links = append(kept, l, held.link)
			c.Unknown = ""
			return
		default:
			kept = append(kept, l)
		}
	}
}

// lastAlive returns the last process of some links that has not ended, nil where that waits for something that is known
// and is no process.
func (e *Explorer) lastAlive(links []facts.Link) *facts.Link {
	for i := len(links) - 1; i >= 0; i-- {
		l := &links[i]
		if l.State == facts.LinkThrottled && l.Kind == facts.KindCgroup {
			continue
		}
		if l.PID == 0 || l.State.StandsStill() {
			return nil
		}
		p, err := proc.ReadStat(e.procfs, l.PID)
		if err == nil && !p.Dead() {
			return l
		}
	}
	return nil
}

// cgroupOwner returns the process that shows in which cgroup for the CPU a process is: of one that is ending, whose own
// cgroup v1 shows as the root, it is the parent.
func (e *Explorer) cgroupOwner(pid int) int {
	p, err := proc.ReadStat(e.procfs, pid)
	if err == nil && p.Exiting {
		return p.PPID
	}
	return pid
}

// isBelow reports whether a process is in a cgroup for the CPU, or in one below it.
func (e *Explorer) isBelow(pid int, cgroup string) bool {
	tree := proc.NewCgroupTree(e.procfs, e.sysfs, proc.NewFiles(func(string, error) {}))
	groups, err := tree.Of(e.cgroupOwner(pid))
	if err != nil {
		return false
	}
	_, path := tree.Base(groups, "cpu")
	return strings.HasPrefix(path+"/", strings.TrimSuffix(cgroup, "/")+"/")
}

// replaceByShim makes the link of a helper that of its shim, where that is in the cgroup as well.
func (e *Explorer) replaceByShim(ctx context.Context, l *facts.Link, cgroup string) {
	helper, err := proc.ReadStat(e.procfs, l.PID)
	if err != nil {
		return
	}
	parent, err := proc.ReadStat(e.procfs, helper.PPID)
	if err == nil && e.isShim(ctx, parent) && e.isBelow(parent.PID, cgroup) {
		*l = e.linkOf(ctx, parent)
	}
}
