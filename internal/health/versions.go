package health

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names that runtimes give themselves in the answer to Version.
const (
	runtimeContainerd = "containerd"
	runtimeCRIO       = "cri-o"
)

// Versions is a range of versions of one runtime.
type Versions struct {
	// Runtime is the name that the runtime gives itself.
	Runtime string
	// From is the first version of the range and Before the first one after it,
	// as major.minor; empty for no limit.
	From, Before string
}

// The ranges in which the tried versions of containerd differ: 1.6.20, 1.7.24,
// 2.1.9 and 2.4.2.
var (
	containerd16     = Versions{Runtime: runtimeContainerd, Before: "1.7"}
	containerd17     = Versions{Runtime: runtimeContainerd, From: "1.7", Before: "2.0"}
	containerdFrom17 = Versions{Runtime: runtimeContainerd, From: "1.7"}
	containerdFrom20 = Versions{Runtime: runtimeContainerd, From: "2.0"}
	crioAll          = Versions{Runtime: runtimeCRIO}
	statusNeedsFile  = []Versions{containerdFrom17}
)

// includes reports whether the runtime's name and version are in the range. A
// version that cannot be parsed is in no range that has a limit.
func (v Versions) includes(r Runtime) bool {
	if r.Name != v.Runtime {
		return false
	}
	if v.From == "" && v.Before == "" {
		return true
	}
	got, ok := parseVersion(r.Version)
	if !ok {
		return false
	}
	if from, limited := parseVersion(v.From); limited && slices.Compare(got, from) < 0 {
		return false
	}
	before, limited := parseVersion(v.Before)
	return !limited || slices.Compare(got, before) < 0
}

// anyIncludes reports whether one of the ranges includes the runtime.
func anyIncludes(ranges []Versions, r Runtime) bool {
	return slices.ContainsFunc(ranges, func(v Versions) bool { return v.includes(r) })
}

// parseVersion returns the major and the minor version of "1.7.24", "v2.4.2",
// "1.6.20~ds1" or "v1.7.23-k3s2". A pre-release counts as its release.
func parseVersion(s string) (majorMinor []int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) < 2 {
		return nil, false
	}
	for i, part := range parts[:2] {
		if i == 1 {
			part = part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		}
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, false
		}
		majorMinor = append(majorMinor, int(n))
	}
	return majorMinor, true
}

// String returns the range in words: "containerd 1.7", "containerd 2.0 and
// newer", "CRI-O".
func (v Versions) String() string {
	name := v.Runtime
	if name == runtimeCRIO {
		name = "CRI-O"
	}
	switch {
	case v.From == "" && v.Before == "":
		return name
	case v.From == "":
		return name + " before " + v.Before
	case v.Before == "":
		return name + " " + v.From + " and newer"
	default:
		return name + " " + v.From + " up to, but not including, " + v.Before
	}
}

// versionsText joins ranges with commas; "all" for none.
func versionsText(ranges []Versions) string {
	if len(ranges) == 0 {
		return "all"
	}
	var out []string
	for _, v := range ranges {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

// VersionNote is what a row says differently for some runtimes.
type VersionNote struct {
	For []Versions
	// Next replaces the row's next step where it is not empty.
	Next string
	// Step is one more step of the runbook; empty for none.
	Step string
	// Restart replaces the row's answer where it is not empty; RestartNote goes
	// with it.
	Restart     Help
	RestartNote string
}

// holdsFor reports whether the row holds for the runtime. A row with a limit does not
// hold for a runtime that has not given its name.
func (r *Reason) holdsFor(rt Runtime) bool { return len(r.For) == 0 || anyIncludes(r.For, rt) }

// ForRuntime returns the row as it reads for a runtime: with the notes for its
// version in place of what they replace.
func (r *Reason) ForRuntime(rt Runtime) Reason {
	out := *r
	for _, n := range r.Notes {
		if !anyIncludes(n.For, rt) {
			continue
		}
		if n.Next != "" {
			out.Next = n.Next
		}
		if n.Step != "" {
			out.Steps = append(slices.Clone(out.Steps), n.Step)
		}
		if n.Restart != "" {
			out.Restart, out.RestartNote = n.Restart, n.RestartNote
		}
	}
	return out
}

// statusWillFail reports whether the next Status fails for want of a file
// descriptor: the runtime opens a file for each, and has none left. The
// kubelet's 30-s rule then runs from the last good Status on, however well the
// lists are answered.
func statusWillFail(f *Facts) bool {
	p := f.Evidence.Process
	return p != nil && p.FDsExhausted() && anyIncludes(statusNeedsFile, f.Runtime)
}

// statusFailsForDescriptors reports whether Status last failed for want of a file
// descriptor, and has not been answered since one is free again.
func (w *view) statusFailsForDescriptors() bool {
	p, e := w.f.Evidence.Process, w.f.Status.LastErr
	if p == nil || e == nil || p.ExhaustedAt.IsZero() || !anyIncludes(statusNeedsFile, w.f.Runtime) {
		return false
	}
	failed := w.f.Calls[opStatus].LastFailed
	return w.age(p.ExhaustedAt) <= acceptsAgain && failed.Sub(p.ExhaustedAt) <= time.Second
}
