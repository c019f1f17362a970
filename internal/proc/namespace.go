package proc

import "strings"

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
func pidDepth(procfs string, pid int) int {
	b, _ := Read(Path(procfs, pid, "status"), maxProcFile) // of one that has ended there is none
	return len(strings.Fields(value(b, "NSpid")))
}
