package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// loggedMost is how many of the kernel's messages a reason shows, the newest.
	loggedMost = 3
	// killedBefore is how long after a kill of the kubelet its healthz is first found without a listener, at most.
	killedBefore = 30 * time.Second
)

// kernelMessages returns the newest messages of the kernel's that are evidence of a reason which matches without them.
func (s *signals) kernelMessages(concerns func(*signals, *facts.KernelMessage) bool) (out []facts.KernelMessage) {
	log := s.f.Evidence.KernelLog
	if log == nil || concerns == nil {
		return nil
	}
	for i := range log.Messages {
		m := &log.Messages[i]
		if concerns(s, m) {
			out = append(out, *m)
		}
	}
	return out[max(0, len(out)-loggedMost):]
}

// kernelText is a message as evidence.
func kernelText(m *facts.KernelMessage) string {
	clock := m.At.UTC().Format("15:04:05 UTC")
	text := fmt.Sprintf("the kernel logged at %s: %s", clock, m.Text)
	if m.Kind != facts.LogHung && m.Kind != facts.LogDisk {
		text = fmt.Sprintf("the kernel killed pid %d for memory at %s", m.PID, clock)
	}
	if m.Cgroup != "" {
		text += ", by the limit of the cgroup " + m.Cgroup
	}
	if m.Count > 1 {
		text += ", the last of " + facts.Count(m.Count, "time", "times")
	}
	return text
}

// loggedKill reports whether a message is about the kill of a process of the hop.
func (s *signals) loggedKill(m *facts.KernelMessage) bool {
	return m.Kind == facts.LogKill && m.Socket == s.f.Evidence.Socket
}

// loggedEnd reports whether a message is about the kill of the hop's last process.
func (s *signals) loggedEnd(m *facts.KernelMessage) bool {
	return s.loggedKill(m) && m.PID == s.process.PID
}

// loggedKubeletEnd reports whether a message is about the kill of the kubelet that nobody listens for since.
func (s *signals) loggedKubeletEnd(m *facts.KernelMessage) bool {
	k := cmp.Or(s.f.Evidence.Kubelet, &facts.Kubelet{})
	return m.Kind == facts.LogKubeletKill && !m.At.Before(k.FailedSince.Add(-killedBefore))
}

// loggedHang reports whether a message is about a thread of the hop that has not run since, or about a process that the
// chain of waiting names.
func (s *signals) loggedHang(m *facts.KernelMessage) bool {
	isThread := func(b facts.BlockedThread) bool { return b.TID == m.TID && m.At.After(b.Since) }
	isLink := func(l facts.Link) bool { return l.PID == m.PID && m.At.After(l.Since) }
	return m.Kind == facts.LogHung &&
		(m.PID == s.process.PID && slices.ContainsFunc(s.process.Blocked, isThread) ||
			s.chain != nil && slices.ContainsFunc(s.chain.Links, isLink))
}

// loggedDisk reports whether a message is about a disk that carries the runtime's directories, or their file system.
func (s *signals) loggedDisk(m *facts.KernelMessage) bool {
	storage := cmp.Or(s.f.Evidence.Storage, &facts.Storage{})
	carries := func(f facts.FileSystem) bool { return slices.Contains(f.Disks, m.Device) }
	return m.Kind == facts.LogDisk && slices.ContainsFunc(storage.FileSystems, carries)
}

// loggedStall reports whether a message is about a thread that hangs, or about its disk.
func (s *signals) loggedStall(m *facts.KernelMessage) bool { return s.loggedHang(m) || s.loggedDisk(m) }

// killedNext is the step where the kernel has killed the hop's process for memory, "" where it has not.
func (s *signals) killedNext(concerns func(*signals, *facts.KernelMessage) bool) string {
	kills := s.kernelMessages(concerns)
	path := ""
	if limit := s.killingLimit(); limit != nil {
		path = limit.Path
	}
	if len(kills) > 0 {
		path = cmp.Or(kills[len(kills)-1].Cgroup, path)
	}
	switch {
	case path != "":
		return fmt.Sprintf("Raise the memory limit of the cgroup %s, for which the kernel kills the runtime.", path)
	case len(kills) == 0:
		return ""
	}
	return "Free memory on the node: the kernel kills the runtime for want of it. What it killed, and what used memory: " +
		"`journalctl -k -b | grep -i -e oom -e 'Killed process'`."
}
