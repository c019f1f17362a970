package facts

import (
	"fmt"
	"slices"
	"strings"
)

// ParseVersion returns major and minor of "1.7.24", "v2.4.2" or "1.6.20~ds1"; a pre-release is its release.
func ParseVersion(s string) (majorMinor []int, ok bool) {
	majorMinor = make([]int, 2)
	_, err := fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d", &majorMinor[0], &majorMinor[1])
	return majorMinor, err == nil
}

// RelistsLess reports whether EventedPLEG lengthens the kubelet's relist period, as it did until 1.36.
func (k *Kubelet) RelistsLess() (lengthened, known bool) {
	if k == nil {
		return false, false
	}
	v, known := ParseVersion(k.Version)
	return known && slices.Compare(v, []int{1, 37}) < 0, known
}

// StatusNeedsFile reports whether the runtime opens a file for each Status, as containerd does since 1.7.
func (r Runtime) StatusNeedsFile() bool {
	v, ok := ParseVersion(r.Version)
	return ok && r.Name == "containerd" && slices.Compare(v, []int{1, 7}) >= 0
}
