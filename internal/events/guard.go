package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/cri"
)

// Unsafe says why subscribing to a runtime's events does harm even by lease, and
// what to do; "" where it does none.
//
// containerd 1.7 gives all its subscribers one queue (pkg/cri/sbserver,
// containerEventsChan): each event goes to one of them, so every event that
// plegd gets is one that the kubelet does not. 1.6 has no events, and says so
// itself; 2.x has a queue for each.
func Unsafe(v cri.Version) string {
	if v.RuntimeName != "containerd" {
		return ""
	}
	const remedy = "--events=off ends this message, containerd 2.x ends its cause, and --events-allow-unsafe is for a " +
		"node whose kubelet uses no events"
	major, minor, ok := release(v.RuntimeVersion)
	switch {
	case !ok:
		return fmt.Sprintf("containerd says that it is version %q: one of 1.7 would hand plegd the kubelet's events; %s",
			v.RuntimeVersion, remedy)
	case major == 1 && minor >= 7:
		return fmt.Sprintf("containerd %s hands each event to only one of its subscribers, so plegd would take the "+
			"kubelet's; %s", v.RuntimeVersion, remedy)
	}
	return ""
}

// release is the major and minor number of a version such as 1.7.24,
// v2.4.2+unknown or 1.7.20~ds1.
func release(version string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if !found {
		return 0, 0, false
	}
	second := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = rest[:i]
	}
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(second)
	return major, minor, err == nil
}
