package health

import "fmt"

// threadReasons speak of single threads of the runtime that do not go on.
var threadReasons = []Reason{
	{
		ID: RuntimeThreadStuck, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: func(w *view) bool { return w.on(sigListsSuffer) },
		Meaning:       "A thread of the runtime waits in the kernel and does not go on: what it was doing, often the start of a pod, hangs, while lists may be answered at once.",
		Needs:         "a thread of the runtime, or of dockerd behind cri-dockerd, that has not run, or was in D most of the time, in a wait channel that is not idle and is none of a file system, a memory limit or a file lock: a pipe or socket that nobody reads, a lock in the kernel.",
		Thresholds: []Threshold{
			{"has not run, or in D most of the time, for %s", blockedWhileServing},
		},
		Next: "Find the process that the thread waits for: `plegd status` names it where the kernel shows it.",
		Steps: []string{
			"`anon_pipe_write` or `pipe_write`: a pipe is full; `ls -l /proc/{pid}/fd/2` names the runtime's log pipe, `lsof -E -p {pid}` its reader.",
			"`sock_alloc_send_pskb` or `unix_wait_for_peer`: a unix socket is full; of journald's see `systemctl status systemd-journald`.",
			"`cat /proc/{blocked}/stack` shows the way into the kernel of any other.",
		},
		Restart: HelpsMaybe, RestartNote: "It does not help while the process that does not read is still there.",
		match: threadStuck,
	},
}

func threadStuck(w *view) []string {
	if out := w.chainEvidence(RuntimeThreadStuck); out != nil {
		return out
	}
	if w.on(sigFreezerHoldsThreads) {
		return nil
	}
	for _, p := range w.callProcesses() {
		if threads := w.blockedOf(p, waitOther, blockedWhileServing); len(threads) > 0 {
			return []string{fmt.Sprintf("pid %d (%s): %s", p.PID, p.Comm, w.blockedText(threads))}
		}
	}
	return nil
}

// callProcesses are the processes on a call's way: the runtime, and behind cri-dockerd
// dockerd and its containerd.
func (w *view) callProcesses() []*Process {
	out := []*Process{w.f.Evidence.Process}
	if d := w.f.Evidence.Docker; d != nil {
		for _, hop := range []*DockerProcess{d.Daemon, d.Containerd} {
			if hop != nil && !hop.Frozen {
				out = append(out, hop.Process)
			}
		}
	}
	return out
}
