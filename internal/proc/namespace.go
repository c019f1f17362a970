package proc

import (
	"strconv"
	"strings"
)

// MountNamespace names the mount namespace of a process, as "mnt:[4026531841]".
func MountNamespace(procfs string, pid int) (string, error) { return Link(Path(procfs, pid, "ns/mnt")) }

// SharesNamespace reports whether a process is in the namespace of another, of a kind such as
// "net". The error is why one of the two could not be read.
func SharesNamespace(procfs string, pid, peer int, kind string) (bool, error) {
	return IsSameLink(Path(procfs, pid, "ns/"+kind), Path(procfs, peer, "ns/"+kind))
}

// IsSameLink reports whether two links, as those of namespaces, lead to the same. The error is why one
// of the two could not be read.
func IsSameLink(path, peer string) (bool, error) {
	target, err := Link(path)
	if err != nil {
		return false, err
	}
	peers, err := Link(peer)
	return target == peers, err
}

// PIDIn returns the number of a process in the pid namespace of a peer, which names it so; 0 where
// that is not known.
func PIDIn(procfs string, pid, peer int) int {
	numbers := namespacePIDs(procfs, pid)
	depth := len(namespacePIDs(procfs, peer))
	if depth == 0 || depth > len(numbers) {
		return 0
	}
	number, _ := strconv.Atoi(numbers[depth-1])
	return number
}

// namespacePIDs are the numbers of a process in the pid namespaces that show it, the outermost first.
func namespacePIDs(procfs string, pid int) []string {
	b, _ := Read(Path(procfs, pid, "status"), maxProcFile) // of one that has ended there is none
	return strings.Fields(value(b, "NSpid"))
}
