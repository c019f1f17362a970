package proc

import "strings"

// SharesNamespaces reports whether a process is in the namespaces of another, of the
// kinds "pid", "mnt" or "net". A container's process has a mount namespace of its own, also
// in a pod with the node's PIDs. Without CAP_SYS_PTRACE only the depth of the PID namespace
// is known.
func SharesNamespaces(procfs string, pid, peer int, kinds ...string) bool {
	for _, kind := range kinds {
		if !sharesNamespace(procfs, pid, peer, kind) {
			return false
		}
	}
	return true
}

func sharesNamespace(procfs string, pid, peer int, kind string) bool {
	a, errA := Link(Path(procfs, pid, "ns/"+kind))
	b, errB := Link(Path(procfs, peer, "ns/"+kind))
	if errA == nil && errB == nil {
		return a == b
	}
	return pidDepth(procfs, pid) == pidDepth(procfs, peer)
}

// pidDepth is the number of pid namespaces that show a process; 0 where that is not known.
func pidDepth(procfs string, pid int) int {
	b, _ := Read(Path(procfs, pid, "status"), maxProcFile) // of one that has ended there is none
	return len(strings.Fields(value(b, "NSpid")))
}
