package proc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSemaphores bounds the semaphores of a set that are read.
	maxSemaphores = 256

	// Commands of semctl(2), all of which only read (linux/sem.h).
	lastPID    = 11 // GETPID
	waitToTake = 14 // GETNCNT
	waitToZero = 15 // GETZCNT
)

// IPCUse is the last use of a System V semaphore or message queue.
type IPCUse struct {
	What string // what the process did, as "sent to it"
	PID  int    // 0 where the pid namespace does not show it
	// At is when the set or the queue was last used in this way. The kernel keeps whole seconds.
	At time.Time
}

// IsBy reports whether a process made the use: one that began later has only the same pid.
func (u IPCUse) IsBy(p Process) bool {
	begun := StartedAt(time.Now(), Uptime(), p.Start)
	return u.PID == p.PID && begun.Before(u.At.Add(time.Second))
}

// AwaitedSemaphores returns the last changes of those semaphores of a set for which a thread waits, in the IPC namespace of
// this process.
func AwaitedSemaphores(procfs string, set int) (out []IPCUse, err error) {
	fields, err := ipcFields(procfs, "sem", "semid", set)
	if err != nil {
		return nil, err
	}
	changed := time.Unix(max(fields["otime"], fields["ctime"]), 0)
	for n := range min(int(fields["nsems"]), maxSemaphores) {
		takers, err := semctl(set, n, waitToTake)
		if err != nil {
			return nil, err
		}
		others, err := semctl(set, n, waitToZero)
		if err != nil {
			return nil, err
		}
		if takers+others == 0 {
			continue
		}
		pid, err := semctl(set, n, lastPID)
		if err != nil {
			return nil, err
		}
		out = append(out, IPCUse{What: fmt.Sprintf("changed semaphore %d of it", n), PID: pid, At: changed})
	}
	return out, nil
}

// semctl asks for a number of a semaphore.
func semctl(set, semaphore, command int) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_SEMCTL, uintptr(set), uintptr(semaphore), uintptr(command)) //nolint:gosec // small
	if errno != 0 {
		return 0, failed(fmt.Sprintf("semctl of set %d", set), errno)
	}
	return int(n), nil //nolint:gosec // a pid or a count
}

// QueueUses returns the last message that was sent to a System V message queue, and the last that was received from it, in
// the IPC namespace of this process.
func QueueUses(procfs string, queue int) (sent, received IPCUse, err error) {
	fields, err := ipcFields(procfs, "msg", "msqid", queue)
	sent = IPCUse{What: "sent to it", PID: int(fields["lspid"]), At: time.Unix(fields["stime"], 0)}
	received = IPCUse{What: "received from it", PID: int(fields["lrpid"]), At: time.Unix(fields["rtime"], 0)}
	return sent, received, err
}

// ipcFields returns the numbers of the line of a /proc/sysvipc file with an id, by the names in its first line.
func ipcFields(procfs, file, idName string, id int) (map[string]int64, error) {
	b, err := ReadFile(procfs, "sysvipc", file)
	if err != nil {
		return nil, err
	}
	head, lines, _ := strings.Cut(string(b), "\n")
	names := strings.Fields(head)
	for line := range strings.Lines(lines) {
		fields := map[string]int64{}
		for i, value := range strings.Fields(line) {
			n, err := strconv.ParseInt(value, 10, 64)
			if err == nil && i < len(names) {
				fields[names[i]] = n
			}
		}
		found, ok := fields[idName]
		if ok && found == int64(id) {
			return fields, nil
		}
	}
	return nil, &ReadError{Path: fmt.Sprintf("%s/sysvipc/%s: %s %d", procfs, file, idName, id), Outcome: Absent}
}
