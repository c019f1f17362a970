// Package family classifies the node's processes: the kubelet, a shim, a helper, a container's
// own process. A name alone proves nothing: each classification rests on the proofs of
// proc.Identity, and an answer says which proof failed or could not be had.
//
// It reads the node through internal/proc only.
package family

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

// Answer is whether a process has a role.
type Answer struct {
	// Refused is why the process does not have the role; "" where it has.
	Refused string
	// Err is why a proof that decides could not be read, nil where none could not.
	Err error
	// Unproven are the proofs that could not be read and that the answer does without.
	Unproven []proc.Proof
	// Lasts is true of a child that is no helper while it runs or sleeps, as it may run for long. One that
	// stands still holds its parent up.
	Lasts bool
}

// Proven reports whether the process has the role.
func (a Answer) Proven() bool { return a.Refused == "" }

func refused(format string, args ...any) Answer {
	return Answer{Refused: fmt.Sprintf(format, args...)}
}

// unproved is the answer where a proof that decides could not be read.
func unproved(err error) Answer { return Answer{Refused: err.Error(), Err: err} }

// kubelets are the executables of kubelets by the name of the process: a distribution's own
// program has the kubelet built in.
var kubelets = map[string][]string{
	"kubelet":    {"kubelet", "hyperkube"},
	"k3s-server": {"k3s", "k3s-server"},
	"k3s-agent":  {"k3s", "k3s-agent"},
	"kubelite":   {"kubelite"},
}

// ownMounts are cgroups in which a distribution runs its kubelet with a mount namespace of its
// own: Talos has it in a container, microk8s in a snap.
var ownMounts = []string{"/podruntime/kubelet", "/system.slice/snap.microk8s.", "/system.slice/snap.kubelet"}

// Kubelet classifies a process as a kubelet of the node. first is the identity of pid 1.
//
// A kubelet runs as root in the node's user and pid namespace, is in no container's cgroup, and
// its executable is a kubelet's, on the node's own file systems. The user and the cgroup must be
// proven; other proofs are done without where the kernel denies them.
func Kubelet(p, first proc.Identity) Answer {
	if !NamedKubelet(p.Process) {
		return refused("%q is not the name of a kubelet", p.Comm)
	}
	if answer := ofNode(p, first); !answer.Proven() {
		return answer
	}
	if p.Exe != "" && !slices.Contains(kubelets[p.Comm], programOf(p)) {
		return refused("its executable is %s", p.Exe)
	}
	private := p.MountNS != "" && first.MountNS != "" && p.MountNS != first.MountNS && !p.ExeOnNode
	if private && !hasOwnMounts(p) {
		return refused("its executable %s is not in the mount namespace of pid 1", p.Exe)
	}
	return Answer{Unproven: unproven(p, proc.ProofExe, proc.ProofMountNS, proc.ProofUserNS, proc.ProofPIDNS)}
}

// ofNode refuses a process that does not prove to be root of the node itself, outside of every
// container.
func ofNode(p, first proc.Identity) Answer {
	if err := p.Unread[proc.ProofUser]; err != nil {
		return Answer{Refused: fmt.Sprintf("its user could not be read (%s)", proc.OutcomeOf(err)), Err: err}
	}
	if !p.IsRoot() {
		return refused("it runs as uid %d", lowestUser(p.UIDs))
	}
	if differ(p.UserNS, first.UserNS) {
		return refused("it is in another user namespace than pid 1")
	}
	if differ(p.PIDNS, first.PIDNS) || p.PIDDepth != first.PIDDepth {
		return refused("it is in another pid namespace than pid 1")
	}
	if err := p.Unread[proc.ProofCgroup]; err != nil {
		return Answer{Refused: fmt.Sprintf("its cgroup could not be read (%s)", proc.OutcomeOf(err)), Err: err}
	}
	if cgroup, found := containerCgroup(p.Cgroups, first.Cgroups); found {
		return refused("its cgroup %s is a container's", cgroup)
	}
	return Answer{}
}

// lowestUser returns a user id that is not 0.
func lowestUser(uids []int) int {
	for _, uid := range uids {
		if uid != 0 {
			return uid
		}
	}
	return -1
}

// differ reports whether two namespaces are known and not the same.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

func hasOwnMounts(p proc.Identity) bool {
	main := p.Cgroups.Main()
	return slices.ContainsFunc(ownMounts, func(prefix string) bool { return strings.HasPrefix(main, prefix) })
}

// unproven returns those of the parts that could not be read.
func unproven(p proc.Identity, parts ...proc.Proof) []proc.Proof {
	var out []proc.Proof
	for _, part := range parts {
		if p.Unread[part] != nil {
			out = append(out, part)
		}
	}
	return out
}
