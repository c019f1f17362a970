package proc

import "strings"

// IsDumpingCore reports whether a process has crashed and its memory is being written (CoreDumping of /proc/PID/status, since
// Linux 4.15).
func IsDumpingCore(procfs string, pid int) (bool, error) {
	b, err := ReadFile(Path(procfs, pid, "status"))
	return number(b, "CoreDumping", 10, 0) == 1, err
}

// CoreProgram returns the path of the program to which the kernel writes cores, "" where it writes them to files (core(5)).
func CoreProgram(procfs string) (string, error) {
	b, err := ReadFile(procfs, "sys/kernel/core_pattern")
	pattern, isPipe := strings.CutPrefix(string(b), "|")
	fields := strings.Fields(pattern)
	if !isPipe || len(fields) == 0 {
		return "", err
	}
	return fields[0], err
}
