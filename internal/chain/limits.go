package chain

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
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
