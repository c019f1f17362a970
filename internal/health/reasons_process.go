package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// blockedAfter is how long threads must be in D to count as stalled.
	blockedAfter = 2 * time.Second
	// lockedAfter is how long a file lock must be waited for.
	lockedAfter = time.Second
	// throttledShare is the time a second that a quota must take away, and
	// slowCall what a list must take, for a quota to count as the cause.
	throttledShare = 0.3
	throttledStill = 0.5 // of the periods, where it has been throttled before
	slowCall       = 300 * time.Millisecond
	// restartsWithin, restartsMany and restartsOver: so many starts in that
	// time are a loop, until none has come for that long.
	restartsWithin = 5 * time.Minute
	restartsMany   = 3
	restartsOver   = time.Minute
)

// processReasons speak of the process behind the socket.
var processReasons = []Reason{
	{
		ID: RuntimeFrozen, Severity: SeverityCritical,
		Meaning:  "The runtime is stopped or frozen: it exists, and not one of its threads runs.",
		Needs:    "every thread is in state T, or its cgroup is frozen.",
		Outranks: slices.Concat([]string{AcceptFDExhausted, RuntimeThrottled, RuntimeStorageStall, RuntimeStarting, RuntimeRestarting}, accept, calls),
		Next:     "Find out who stopped it (a debugger, a signal, a freezer), and continue it.",
		Steps: []string{
			"`grep State /proc/$(pidof containerd)/status`: T (stopped) or t (traced by TracerPid).",
			"`kill -CONT $(pidof containerd)` where it was stopped by a signal.",
			"`cat /sys/fs/cgroup/system.slice/containerd.service/cgroup.freeze`: 1 is frozen; `systemctl thaw containerd`.",
		},
		Restart: HelpsMaybe, RestartNote: "Continuing or thawing it is enough, and gentler.",
		match: func(w *view) []string {
			p, c := w.f.Evidence.Process, w.f.Evidence.Cgroup
			if p == nil || !p.Alive {
				return nil
			}
			if c != nil && c.Frozen {
				return []string{fmt.Sprintf("the cgroup of pid %d is frozen: %s", p.PID, c.Path)}
			}
			n := threads(p)
			if n > 0 && p.Threads["T"] == n {
				return []string{fmt.Sprintf("pid %d (%s): all %d threads are stopped", p.PID, p.Comm, n)}
			}
			// Thawed since the threads were last looked at: no disk held them up.
			if n > 0 && p.Threads["D"] == n && w.was(RuntimeFrozen) && (c == nil || !p.At.After(c.At)) {
				return []string{fmt.Sprintf("pid %d (%s): none of %d threads ran when last looked at", p.PID, p.Comm, n)}
			}
			return nil
		},
	},
	{
		ID: RuntimeStorageStall, Severity: SeverityCritical,
		Meaning:  "The runtime waits for the disk: threads of it are stuck in the kernel, and calls hang on them.",
		Needs:    "threads in D all the time and not by a freezer, while calls hang or are slow.",
		Numbers:  "D for 2s.",
		Outranks: slices.Concat([]string{NodeIOStall, RuntimeStarting}, accept, calls),
		Next:     "Look at the disk under /var/lib/containerd before anything else.",
		Steps: []string{
			"`cat /proc/pressure/io`; `dmesg -T | tail -50`: I/O errors, a hung device, a file system gone read-only?",
			"`for t in /proc/$(pidof containerd)/task/*; do cat $t/wchan; echo; done | sort | uniq -c`: where they wait.",
			"A network file system that does not answer looks the same: `mount | grep -e nfs -e fuse`.",
		},
		Restart: HelpsNo, RestartNote: "A process in D cannot be killed: the restart hangs too.",
		match: func(w *view) []string {
			p := w.f.Evidence.Process
			if p == nil || !p.Alive || p.Threads["D"] == 0 || p.BlockedSince.IsZero() || w.age(p.BlockedSince) < blockedAfter || !w.callsSuffer() || w.refrigerated(p) {
				return nil
			}
			out := []string{fmt.Sprintf("%s in D for %s", count(p.Threads["D"], "thread", "threads"), short(w.age(p.BlockedSince)))}
			if len(p.WaitChannels) > 0 {
				out = append(out, "waiting in "+strings.Join(p.WaitChannels, ", "))
			}
			return append(out, w.callEvidence()...)
		},
	},
	{
		ID: RuntimeStorageLocked, Severity: SeverityCritical,
		Meaning:  "The runtime waits for a file lock that another process holds.",
		Needs:    "a waiting entry of the runtime's in /proc/locks, while it does not serve or calls hang.",
		Numbers:  "1s.",
		Outranks: slices.Concat([]string{RuntimeSocketMissing, RuntimeNotListening, RuntimeStarting}, accept, calls),
		Next:     "See what the holder of the lock is doing; a second runtime or a storage tool started by hand is usual.",
		Steps: []string{
			"`cat /proc/locks`: the line with -> is the runtime, the one above it the holder.",
			"`ps -fp PID` of the holder: let it end, or end it.",
		},
		Restart: HelpsNo, RestartNote: "It would wait for the same lock.",
		match: func(w *view) []string {
			p := w.f.Evidence.Process
			if p == nil || !p.Alive || p.Lock == nil || w.age(p.Lock.Since) < lockedAfter || w.f.Relist.Failures == 0 && !w.callsSuffer() {
				return nil
			}
			l := p.Lock
			return []string{fmt.Sprintf("pid %d waits for a lock on %s, held by pid %d (%s), for %s", p.PID, l.File, l.HolderPID, l.HolderComm, short(w.age(l.Since)))}
		},
	},
	{
		ID: RuntimeThrottled, Severity: SeverityCritical,
		Meaning:  "The runtime's CPU quota keeps it from running: its answers take long or run into their time limit.",
		Needs:    "the runtime's cgroup is being throttled, while lists are slow or hang.",
		Numbers:  "throttled for 0.3s a second, to begin with, then in half of the periods; one of the last three relists' lists above 300ms.",
		Outranks: slices.Concat([]string{RuntimeStarting}, accept, calls, []string{NodeCPUStall}),
		Next:     "Raise or remove the CPU quota of the runtime's unit.",
		Steps: []string{
			"`systemctl show containerd -p CPUQuotaPerSecUSec`; `cat /sys/fs/cgroup/system.slice/containerd.service/cpu.max`.",
			"`systemctl set-property --runtime containerd CPUQuota=` removes it until the next boot.",
		},
		Restart: HelpsNo, RestartNote: "The quota stays.",
		match: func(w *view) []string {
			c := w.f.Evidence.Cgroup
			// The kernel adds up the time only when it lets the process run again.
			if c == nil || c.Throttled < throttledShare && !(w.was(RuntimeThrottled) && c.ThrottledPeriods >= throttledStill) ||
				!w.callsSuffer() && !w.slowLately() {
				return nil
			}
			out := []string{fmt.Sprintf("throttled for %.2gs a second, in %.0f %% of its periods", c.Throttled, 100*c.ThrottledPeriods)}
			if l := w.f.Relist.Lists; len(l) > 0 {
				out = append(out, "the lists of the last relist took "+short(l[len(l)-1]))
			}
			return out
		},
	},
	{
		ID: RuntimeRestarting, Severity: SeverityCritical,
		Meaning:  "The runtime comes and goes: it has been started again and again.",
		Needs:    "the process behind the socket has been replaced repeatedly.",
		Numbers:  "3 times in 5m; ends when it has stayed for 1m.",
		Outranks: slices.Concat([]string{RuntimeSocketMissing, RuntimeNotListening, RuntimeStarting}, accept, calls),
		Next:     "Read in the runtime's log why it ends; it is being started again by systemd.",
		Steps: []string{
			"`journalctl -u containerd -b | grep -e 'Main process exited' -e panic -e fatal`.",
			"`journalctl -k -b | grep -i oom`: killed for memory?",
			"`systemctl show containerd -p NRestarts -p Result`.",
		},
		Restart: HelpsNo, RestartNote: "It is being restarted already.",
		match: func(w *view) []string {
			p := w.f.Evidence.Process
			if p == nil || len(p.Restarts) == 0 {
				return nil
			}
			n := 0
			for _, at := range p.Restarts {
				if w.age(at) <= restartsWithin {
					n++
				}
			}
			last := p.Restarts[len(p.Restarts)-1]
			if n < restartsMany || w.age(last) > restartsOver {
				return nil
			}
			return []string{fmt.Sprintf("started %d times in %s, the last time %s ago", n, short(restartsWithin), short(w.age(last)))}
		},
	},
	{
		ID: DockerDaemonUnreachable, Severity: SeverityCritical,
		Meaning:  "cri-dockerd answers, but the Docker daemon behind it does not.",
		Needs:    "relists fail or hang, and a fresh connection to the Docker socket gets no answer to /_ping.",
		Outranks: slices.Concat(accept, calls),
		Next:     "Mend dockerd; cri-dockerd needs nothing.",
		Steps: []string{
			"`systemctl status docker`; `journalctl -u docker -b -n 100`.",
			"\"accept4: too many open files; retrying in 1s\" in its log: raise LimitNOFILE of docker.service.",
		},
		Restart: HelpsMaybe, RestartNote: "Restart docker, not cri-dockerd.",
		match: func(w *view) []string {
			d := w.f.Evidence.Docker
			_, _, hanging := w.hang()
			if d == nil || d.OK || d.FailedSince.IsZero() || w.f.Relist.Failures == 0 && !hanging {
				return nil
			}
			out := []string{"the Docker socket: " + probeText(*d)}
			if e := w.failed(); e != nil {
				out = append(out, fmt.Sprintf("%s failed: %s", e.Operation, e.Message))
			}
			return out
		},
	},
}

// refrigerator is the wait channel of some of the threads that a v1 freezer holds;
// since Linux 6.1 others stay where they were.
const refrigerator = "__refrigerator"

// refrigerated tells whether threads in D may be so because a freezer of v1 holds
// them: it does, or did when they were last looked at.
func (w *view) refrigerated(p *Process) bool {
	c := w.f.Evidence.Cgroup
	return slices.Contains(p.WaitChannels, refrigerator) || c != nil && (c.Frozen || w.was(RuntimeFrozen) && !p.At.After(c.At))
}

// callsSuffer tells whether lists hang, fail for want of an answer, or are slow.
func (w *view) callsSuffer() bool {
	if in := w.f.Relist.InFlight; in != nil && in.Phase != PhaseInspect && w.age(in.PhaseStart) >= slowCall {
		return true
	}
	if e := w.failed(); e != nil && !e.answered() {
		return true
	}
	l := w.f.Relist.Lists
	return len(l) > 0 && l[len(l)-1] >= slowCall
}

// slowLately tells whether one of the last few relists' lists was slow: under a
// quota a list that meets a fresh period is quick.
func (w *view) slowLately() bool {
	lists := w.f.Relist.Lists
	return slices.ContainsFunc(lists[max(0, len(lists)-recentLists):], func(d time.Duration) bool { return d >= slowCall })
}

func threads(p *Process) int {
	n := 0
	for _, c := range p.Threads {
		n += c
	}
	return n
}

// threadsText says in a word or two how the threads are.
func threadsText(p *Process) string {
	switch n := threads(p); {
	case n == 0:
		return ""
	case p.Threads["T"] == n:
		return "threads stopped"
	case p.Threads["S"] == n:
		return "threads asleep"
	case p.Threads["D"] > 0:
		return count(p.Threads["D"], "thread", "threads") + " in D"
	case p.CPU >= .9:
		return fmt.Sprintf("%.1f cores busy", p.CPU)
	default:
		out := count(p.Threads["R"], "thread", "threads") + " running"
		if p.CPU >= .1 {
			out += fmt.Sprintf(", %.1f cores busy", p.CPU)
		}
		return out
	}
}
