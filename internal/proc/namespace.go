package proc

import (
	"strconv"
	"strings"
)

// MountNamespace names the mount namespace of a process, as "mnt:[4026531841]".
func MountNamespace(procfs string, pid int) (string, error) { return Link(Path(procfs, pid, "ns/mnt")) }

// SharesNamespace reports whether a process is in the namespace of another, of a kind such as
// "net". Without CAP_SYS_PTRACE only the depth of the PID namespace is known.
func SharesNamespace(procfs string, pid, peer int, kind string) bool {
	a, errA := Link(Path(procfs, pid, "ns/"+kind))
	b, errB := Link(Path(procfs, peer, "ns/"+kind))
	if errA == nil && errB == nil {
		return a == b
	}
	return pidDepth(procfs, pid) == pidDepth(procfs, peer)
}

// pidDepth is the number of pid namespaces that show a process; 0 where that is not known.
func pidDepth(procfs string, pid int) int { return len(namespacePIDs(procfs, pid)) }

// PIDIn returns the number of a process in the pid namespace of a peer, which names it so; 0 where
// that is not known.
func PIDIn(procfs string, pid, peer int) int {
	numbers := namespacePIDs(procfs, pid)
	depth := pidDepth(procfs, peer)
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
