package chain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// quotaWindow is the time over which a quota is read: more than its longest period.
	quotaWindow = 1100 * time.Millisecond
	// nearLimit is the share of a memory limit from which it may hold tasks up: a single
	// charge takes up to 64 pages (MEMCG_CHARGE_BATCH).
	nearLimit = 0.75
	// maxDevice bounds a file with the numbers of a device, in bytes.
	maxDevice = 64
)

// ioLimit describes the I/O limit of the process's cgroup, or of one above it, for the device of a
// mount; "" for none. The kernel does not show whether the limit is the cause of the wait.
func (f *waiting) ioLimit(mount proc.Mount) string {
	unread := ""
	tree, groups := f.cgroupsOf(f.pid, &unread)
	disk := f.diskOf(mount.Device)
	for _, controller := range []string{"blkio", "io"} {
		for dir, path := range tree.Up(groups, controller) {
			limit := limitOf(tree.Files, dir, disk)
			if limit != "" {
				return fmt.Sprintf("; the cgroup %s limits its I/O there: %s", path, limit)
			}
		}
	}
	if unread != "" {
		return "; whether a cgroup limits its I/O there could not be read (" + unread + ")"
	}
	return ""
}

// limitOf returns the I/O limit that a cgroup's directory has for a disk, with its file; "" for none.
func limitOf(files proc.Files, dir, disk string) string {
	for _, file := range ioLimits {
		for line := range strings.Lines(files.Text(dir, file)) {
			limit, ok := strings.CutPrefix(strings.TrimSpace(line), disk+" ")
			if ok {
				return file + " " + limit
			}
		}
	}
	return ""
}

// ioLimits are the files of a cgroup with a line for each device that is limited.
var ioLimits = []string{
	"io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device",
	"blkio.throttle.write_iops_device",
}

// diskOf returns the disk of a device that may be a partition, both as major:minor.
func (f *waiting) diskOf(device string) string {
	block := filepath.Join(f.sysfs, "dev/block", device)
	if _, err := proc.ReadFile(block, "partition"); err != nil {
		return device
	}
	b, err := proc.Read(block+"/../dev", maxDevice) // not cleaned: the device is a symbolic link
	if err != nil {
		return device
	}
	return strings.TrimSpace(string(b))
}

// throttled is the wait of the first one of some processes whose cgroup has a CPU quota that takes the CPU from
// it most of the time, which is next; ok is false where there is none.
func (f *waiting) throttled(pids ...int) (out wait, ok bool) {
	first := map[string]proc.CPUStat{}
	for _, pid := range pids {
		f.addQuotas(pid, first)
	}
	if len(first) == 0 {
		return wait{}, false
	}
	time.Sleep(quotaWindow)
	for _, pid := range pids {
		out, ok = f.throttledSince(pid, first)
		if ok {
			return out, true
		}
	}
	return wait{}, false
}

// addQuotas adds what the CPU quotas of a process's cgroup, and of those above it, did until now, by their directories.
func (f *waiting) addQuotas(pid int, stats map[string]proc.CPUStat) {
	tree, groups := f.cgroupsOf(pid, &f.unseen)
	for dir := range tree.Up(groups, "cpu") {
		stat, ok := tree.CPUStat(dir)
		if ok && tree.HasQuota(dir) {
			stats[dir] = stat
		}
	}
}

// throttledSince is the wait of a process for the topmost of some CPU quotas that took the CPU from it most of the time
// since then.
func (f *waiting) throttledSince(pid int, first map[string]proc.CPUStat) (out wait, ok bool) {
	tree, groups := f.cgroupsOf(pid, &f.unseen)
	for dir, path := range tree.Up(groups, "cpu") { // the topmost comes last
		earlier, known := first[dir]
		later, _ := tree.CPUStat(dir)
		periods := later.Periods - earlier.Periods
		taken := later.Throttled - earlier.Throttled
		if known && tree.HasQuota(dir) && taken > 0 && 2*taken >= periods {
			out = cgroupWait(path, facts.LinkThrottled, "its CPU quota holds it up",
				fmt.Sprintf("the quota took the CPU away in %d of %d periods", taken, periods))
			out.next = pid
			ok = true
		}
	}
	return out, ok
}

// starved returns the first one of some processes that is runnable and that a CPU quota holds up, 0 for none.
func (f *waiting) starved(pids []int) int {
	out, _ := f.throttled(without(pids, func(pid int) bool {
		threads, err := proc.ThreadStates(f.procfs, pid, maxThreads)
		return err != nil || !slices.ContainsFunc(threads, func(t proc.Process) bool { return t.State == 'R' })
	})...)
	return out.next
}

// memoryWait adds the wait of a thread held by a memory limit: of the levels the one that
// is nearest to its limit.
func (f *waiting) memoryWait(t thread) {
	out := wait{
		key: "memory", state: facts.LinkMemory, unknown: "no level of its cgroup that can be read is near its limit",
		evidence: fmt.Sprintf("thread %d in D in %s: the memory limit of its cgroup", t.PID, t.channel),
	}
	unread := ""
	tree, groups := f.cgroupsOf(f.pid, &unread)
	for _, files := range [][]string{
		{"memory.usage_in_bytes", "memory.limit_in_bytes"}, {"memory.current", "memory.high", "memory.max"},
	} {
		u := tree.Fullest(groups, "memory", files[0], files[1:]...)
		if u.Limit > 0 && float64(u.Used)/float64(u.Limit) >= nearLimit {
			how := fmt.Sprintf("%d of %d bytes (%s)", u.Used, u.Limit, u.File)
			out = cgroupWait(u.Path, facts.LinkMemory, out.evidence, how)
		}
	}
	if out.unknown != "" && unread != "" {
		out.unknown += " (" + unread + ")"
	}
	f.add(out)
}

// cgroupWait is that of a process that its cgroup holds up.
func cgroupWait(path string, state facts.LinkState, evidence, how string) wait {
	link := facts.Link{Kind: facts.KindCgroup, Name: path, State: state, Evidence: how}
	return wait{key: "cgroup " + path, state: state, evidence: evidence, link: link}
}
