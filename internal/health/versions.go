package health

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names that runtimes report in the answer to Version.
const (
	runtimeContainerd = "containerd"
	runtimeCRIO       = "cri-o"
)

// The tried versions of containerd (1.6.20, 1.7.24, 2.1.9, 2.4.2) differ at these.
var (
	containerd17 = []int{1, 7}
	containerd20 = []int{2, 0}
)

// containerd returns the major and minor version of a containerd; ok is false for
// another runtime and for a version that cannot be parsed.
func (r Runtime) containerd() (majorMinor []int, ok bool) {
	if r.Name != runtimeContainerd {
		return nil, false
	}
	return parseVersion(r.Version)
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

// RelistsLess reports whether EventedPLEG lengthens the kubelet's relist period, as it
// did until 1.36; known is false where the kubelet's version is not known.
func (k *Kubelet) RelistsLess() (less, known bool) {
	if k == nil {
		return false, false
	}
	v, known := parseVersion(k.Version)
	return known && slices.Compare(v, []int{1, 37}) < 0, known
}

// statusNeedsFile reports whether the runtime opens a file for each Status, as
// containerd does since 1.7.
func (r Runtime) statusNeedsFile() bool {
	v, ok := r.containerd()
	return ok && slices.Compare(v, containerd17) >= 0
}

// statusWillFail reports whether the next Status fails for want of a file
// descriptor. The kubelet's 30-s rule then runs from the last good Status on, however
// well the lists are answered.
func (w *view) statusWillFail() bool {
	return w.process.FDsExhausted() && w.f.Runtime.statusNeedsFile()
}

// statusFailsForDescriptors reports whether Status last failed for want of a file
// descriptor, and has not been answered since one is free again.
func (w *view) statusFailsForDescriptors() bool {
	exhausted, failed := w.process.ExhaustedAt, w.f.Calls[opStatus].LastFailed
	return !exhausted.IsZero() && w.f.Status.LastErr != nil && w.f.Runtime.statusNeedsFile() &&
		w.age(exhausted) <= acceptsAgain && failed.Sub(exhausted) <= time.Second
}
