package view

import (
	"fmt"
	"strings"
)

// What is interesting of the node: from here on it is worth a line.
const (
	interestingPressure = 20 // per cent of the last 10 s
	interestingShare    = 0.8
	// interestingAge is the age, in seconds, of the kubelet's own last seen: a
	// good one is a few seconds old, since it is asked every few seconds.
	interestingAge = 15
	// unlimited is what the kernel has where there is no limit to speak of.
	unlimited = 1 << 62
	// shownDown is the most characters of one source's error in the text.
	shownDown = 160
)

// EvidenceRow is one line of evidence, in words.
type EvidenceRow struct{ Label, Text string }

// EvidenceRows says what the node says, as far as it is of interest.
func EvidenceRows(d *StatusDocument) []EvidenceRow {
	var rows []EvidenceRow
	for _, r := range []EvidenceRow{
		{"Process", phraseProcess(d)},
		{"Clients", phraseClients(d)},
		{"Helpers", phraseHelpers(d)},
		{"Docker", phraseDocker(d)},
		{"Healthz", phraseHealthz(d)},
		{"Node", phraseNode(d)},
		{"Missing", phraseDown(d)},
	} {
		if r.Text != "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// phraseProcess says how the process behind the socket is, and its accept queue;
// empty while neither is known. What a healthy node has comes first.
func phraseProcess(d *StatusDocument) string {
	p, c, q := d.Evidence.Process, d.Evidence.Cgroup, d.Evidence.Queue
	var parts []string
	if p != nil {
		who := fmt.Sprintf("pid %d %s", p.PID, Say(p.Comm))
		switch {
		case !p.Alive:
			who += " is gone"
		case p.UpSeconds != nil:
			who += ", up " + FormatSeconds(*p.UpSeconds)
		}
		parts = append(parts, who)
		if p.Alive {
			parts = append(parts, phraseLive(p)...)
		}
	}
	if q != nil {
		if q.Length != nil && q.Limit != nil {
			parts = append(parts, fmt.Sprintf("queue %d of %d", *q.Length, *q.Limit))
		} else {
			parts = append(parts, "nobody listens")
		}
	}
	if c != nil && c.Frozen {
		parts = append(parts, "its cgroup is frozen")
	}
	if c != nil && c.Throttled >= 0.01 {
		parts = append(parts, fmt.Sprintf("throttled for %.2fs a second", c.Throttled))
	}
	if p != nil && p.Alive && p.Lock != nil {
		parts = append(parts, fmt.Sprintf("waits for a lock on %s of pid %d %s", Say(p.Lock.File), p.Lock.HolderPID, Say(p.Lock.HolderComm)))
	}
	if p != nil && p.Restarts > 0 {
		parts = append(parts, FormatCount(p.Restarts, "restart seen", "restarts seen"))
	}
	return strings.Join(parts, "; ")
}

// phraseLive says how a process that lives is.
func phraseLive(p *ProcessDocument) []string {
	var parts []string
	switch {
	case p.OpenFDs != nil && p.MaxFDs != nil:
		parts = append(parts, fmt.Sprintf("fds %d of %d", *p.OpenFDs, *p.MaxFDs))
	case p.OpenFDs != nil:
		parts = append(parts, fmt.Sprintf("fds %d", *p.OpenFDs))
	}
	var threads []string
	for _, state := range ThreadStates() {
		if n := p.Threads[state]; n > 0 {
			threads = append(threads, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(threads) > 0 {
		parts = append(parts, "threads "+strings.Join(threads, ", "))
	}
	return parts
}

// phraseClients names the clients that do not read; empty while all do.
func phraseClients(d *StatusDocument) string {
	c := d.Evidence.Connections
	if c == nil {
		return ""
	}
	var parts []string
	for _, s := range c.Stuck {
		who := "one that cannot be told"
		if s.PID != nil {
			who = fmt.Sprintf("pid %d %s (%s)", *s.PID, Say(s.Comm), Say(s.State))
		}
		parts = append(parts, fmt.Sprintf("%s has not read for %s: %s unread, %s unsent",
			who, FormatSeconds(s.Seconds), formatBytes(s.UnreadBytes), formatBytes(s.UnsentBytes)))
	}
	return strings.Join(parts, "; ")
}

// phraseHelpers names the shims and helpers that are stuck; empty while none is.
func phraseHelpers(d *StatusDocument) string {
	c := d.Evidence.Children
	if c == nil {
		return ""
	}
	var parts []string
	for _, p := range c.Stuck {
		parts = append(parts, fmt.Sprintf("pid %d %s in %s for %s", p.PID, Say(p.Comm), Say(p.State), FormatSeconds(p.Seconds)))
	}
	for _, p := range c.Old {
		parts = append(parts, fmt.Sprintf("pid %d %s runs for %s", p.PID, Say(p.Comm), FormatSeconds(p.Seconds)))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "; " + FormatCount(c.Shims, "shim", "shims") + " in all"
}

// phraseNode says how the node as a whole is; empty while that is nothing to
// speak of.
func phraseNode(d *StatusDocument) string {
	n := d.Evidence.Node
	if n == nil || !interesting(n) {
		return ""
	}
	pressures := []string{"pressure"}
	for _, p := range []struct {
		name       string
		some, full *float64
	}{{"cpu", n.CPUSome, nil}, {"io", n.IOSome, n.IOFull}, {"memory", n.MemorySome, n.MemoryFull}} {
		if p.some == nil {
			continue
		}
		s := fmt.Sprintf("%s %.0f%%", p.name, *p.some)
		if p.full != nil {
			s += fmt.Sprintf("/%.0f%%", *p.full)
		}
		pressures = append(pressures, s)
	}
	var parts []string
	if len(pressures) > 1 {
		parts = append(parts, strings.Join(pressures, " "))
	}
	files := fmt.Sprintf("files %d", n.Files)
	if n.FilesMax > 0 && n.FilesMax < unlimited {
		files += fmt.Sprintf(" of %d", n.FilesMax)
	}
	threads := fmt.Sprintf("threads %d", n.Threads)
	if n.ThreadsMax > 0 {
		threads += fmt.Sprintf(" of %d", n.ThreadsMax)
	}
	return strings.Join(append(parts, files, threads), "; ")
}

func interesting(n *NodeDocument) bool {
	for _, p := range []*float64{n.CPUSome, n.MemorySome, n.MemoryFull, n.IOSome, n.IOFull} {
		if p != nil && *p >= interestingPressure {
			return true
		}
	}
	return n.FilesMax > 0 && float64(n.Files) >= interestingShare*float64(n.FilesMax) ||
		n.ThreadsMax > 0 && float64(n.Threads) >= interestingShare*float64(n.ThreadsMax)
}

// phraseHealthz says what the kubelet says of itself; empty while it says
// nothing, or nothing but that it is well.
func phraseHealthz(d *StatusDocument) string {
	k := d.Evidence.Kubelet
	if k == nil {
		return ""
	}
	var parts []string
	switch {
	case !k.OK:
		s := "the kubelet's own check fails"
		if k.FailedSeconds != nil {
			s += " for " + FormatSeconds(*k.FailedSeconds)
		}
		parts = append(parts, strings.TrimSuffix(s+": "+Say(k.Detail), ": "))
	case k.Detail != "":
		parts = append(parts, Say(k.Detail))
	}
	if k.LastSeenAge != nil && *k.LastSeenAge >= interestingAge {
		parts = append(parts, "its PLEG was last seen "+FormatSeconds(*k.LastSeenAge)+" ago")
	}
	return strings.Join(parts, "; ")
}

// phraseDocker says how the fresh dial of the Docker socket went, and how dockerd
// and its containerd are; empty behind every other runtime than cri-dockerd.
func phraseDocker(d *StatusDocument) string {
	e := d.Evidence.Docker
	if e == nil || e.ProbeDocument == nil {
		return ""
	}
	parts := []string{phraseDial(d, e.ProbeDocument, "ping")}
	for _, p := range []*DockerProcessDocument{e.Daemon, e.Containerd} {
		if p != nil {
			parts = append(parts, phraseDockerProcess(p)...)
		}
	}
	return strings.Join(parts, "; ")
}

// phraseDockerProcess says how a process behind cri-dockerd is.
func phraseDockerProcess(d *DockerProcessDocument) []string {
	var parts []string
	if p := d.Process; p != nil {
		who := fmt.Sprintf("pid %d %s", p.PID, Say(p.Comm))
		if !p.Alive {
			who += " is gone"
		}
		parts = append(parts, who)
		if p.Alive {
			parts = append(parts, phraseLive(p)...)
		}
	}
	if d.Frozen {
		parts = append(parts, "its cgroup is frozen")
	}
	if q := d.Queue; q != nil && q.Length == nil {
		parts = append(parts, "nobody listens on "+Say(d.Socket))
	} else if q != nil && q.Limit != nil {
		parts = append(parts, fmt.Sprintf("queue %d of %d", *q.Length, *q.Limit))
	}
	return parts
}

// phraseDown says which sources of evidence do not answer, and why.
func phraseDown(d *StatusDocument) string {
	var parts []string
	for _, name := range downSources(d) {
		parts = append(parts, Say(name)+": "+Shorten(Say(d.Evidence.Sources[name].Error), shownDown))
	}
	return strings.Join(parts, "; ")
}
