package family

import (
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

// containerCgroup returns a cgroup of a process that is a container's or a pod's, in any
// hierarchy. first are the cgroups of pid 1, by which the depth of plegd's own cgroup namespace
// and the node's own cgroup, where the node is a container itself, are known.
func containerCgroup(cgroups, first proc.Cgroups) (string, bool) {
	for hierarchy, path := range cgroups {
		if isContainer(path, first[hierarchy]) {
			return path, true
		}
	}
	return "", false
}

// isContainer classifies the path of a cgroup. A path outside of plegd's own cgroup namespace
// begins with "..", once for each level up to the ancestor that both have in common:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
//	/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/...   kind's root
//	/kubepods/besteffort/podUID/ID                                            the cgroupfs driver
//	/../../../besteffort/podUID/ID                                            the same, seen by plegd in a pod
func isContainer(path, first string) bool {
	up, components := split(path)
	firstUp, firstComponents := split(first)
	if up == firstUp {
		components = trimNode(components, firstComponents)
	}
	service := false
	for _, name := range components {
		if isContainerName(name) {
			return true
		}
		service = service || strings.HasSuffix(name, ".service")
	}
	// A process that is nearer to plegd's own cgroup than pid 1 is below a cgroup whose name is
	// not known: that of a pod, or, where the node is a container, the kubelet's own.
	return up < firstUp && !service
}

// split returns how many levels a path goes up, and its components below.
func split(path string) (up int, components []string) {
	for name := range strings.SplitSeq(path, "/") {
		switch name {
		case "":
		case "..":
			up++
		default:
			components = append(components, name)
		}
	}
	return up, components
}

// trimNode removes the components of the cgroup in which the node itself is, where it is a
// container: those of pid 1, less its own init.scope, or init where k3s is pid 1.
func trimNode(components, first []string) []string {
	n := len(first)
	if n > 0 && (first[n-1] == "init.scope" || first[n-1] == "init") {
		first = first[:n-1]
	}
	for i, name := range first {
		if i >= len(components) || components[i] != name {
			return components
		}
	}
	return components[len(first):]
}

// containerScopes are the beginnings of the scopes that runtimes make for containers.
var containerScopes = []string{"cri-containerd-", "crio-", "docker-", "libpod-", "nerdctl-", "podman-"}

// isContainerName reports whether a component of a cgroup path is a pod's, a container's, or one
// that holds pods.
func isContainerName(name string) bool {
	if slice, found := strings.CutSuffix(name, ".slice"); found {
		return slices.Contains(strings.Split(slice, "-"), "kubepods")
	}
	if scope, found := strings.CutSuffix(name, ".scope"); found {
		return isContainerScope(scope)
	}
	if uid, found := strings.CutPrefix(name, "pod"); found && isHex(strings.ReplaceAll(uid, "-", "")) {
		return true
	}
	isID := len(name) == 64 && isHex(name)
	return isID || name == "kubepods" || name == "besteffort" || name == "burstable"
}

func isContainerScope(scope string) bool {
	return slices.ContainsFunc(containerScopes, func(prefix string) bool {
		id, found := strings.CutPrefix(scope, prefix)
		return found && isHex(id)
	})
}

// isHex reports whether a name is an id: at least 12 hexadecimal digits.
func isHex(name string) bool {
	return len(name) >= 12 && strings.Trim(name, "0123456789abcdef") == ""
}
