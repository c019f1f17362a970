package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// What is interesting of the node: from here on it is worth a line.
const (
	interestingPressure = 20 // per cent of the last 10 s
	interestingShare    = 0.8
	// interestingAge is the age of the kubelet's own last seen: a
	// good one is a few seconds old, since it is asked every few seconds.
	interestingAge = 15 * time.Second
	// unlimited is what the kernel has where there is no limit to speak of.
	unlimited = 1 << 62
	// shownDown is the most characters of one source's error in the text.
	shownDown = 160
)

// EvidenceRow is one line of evidence, in words.
type EvidenceRow struct{ Label, Text string }

// EvidenceRows says what the node shows, as far as it is of interest.
func EvidenceRows(s *health.Snapshot) []EvidenceRow {
	var rows []EvidenceRow
	for _, r := range []EvidenceRow{
		{"Process", process(s)},
		{"Helpers", helpers(s)},
		{"Docker", docker(s)},
		{"Healthz", healthz(s)},
		{"Node", node(s)},
		{"Missing", missing(s)},
	} {
		if r.Text != "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// process describes the process behind the socket, and its accept queue; empty
// while neither is known. What a healthy node has comes first.
func process(s *health.Snapshot) string {
	e := &s.Facts.Evidence
	p, c, q := e.Process, e.Cgroup, e.Queue
	var parts []string
	if p != nil {
		who := fmt.Sprintf("pid %d %s", p.PID, Say(p.Comm))
		switch {
		case !p.Alive:
			who += " is gone"
		case !p.Start.IsZero():
			who += ", up " + Seconds(s.Age(p.Start))
		}
		parts = append(parts, who)
		parts = append(parts, live(p)...)
	}
	if q != nil {
		parts = append(parts, queue(q, "nobody listens"))
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
	if p != nil && p.RestartsTotal > 0 {
		parts = append(parts, Count(p.RestartsTotal, "restart seen", "restarts seen"))
	}
	return strings.Join(parts, "; ")
}

// queue describes an accept queue.
func queue(q *health.Queue, nobody string) string {
	if !q.Listening {
		return nobody
	}
	return fmt.Sprintf("queue %d of %d", q.Length, q.Limit)
}

// live describes a process that lives.
func live(p *health.Process) []string {
	if !p.Alive {
		return nil
	}
	var parts []string
	switch {
	case p.OpenFDs >= 0 && p.MaxFDs >= 0:
		parts = append(parts, fmt.Sprintf("fds %d of %d", p.OpenFDs, p.MaxFDs))
	case p.OpenFDs >= 0:
		parts = append(parts, fmt.Sprintf("fds %d", p.OpenFDs))
	}
	var threads []string
	for _, state := range health.ThreadStates() {
		if n := p.Threads[state]; n > 0 {
			threads = append(threads, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(threads) > 0 {
		parts = append(parts, "threads "+strings.Join(threads, ", "))
	}
	return parts
}

// helpers names the shims and helpers that are stuck; empty while none is.
func helpers(s *health.Snapshot) string {
	c := s.Facts.Evidence.Children
	if c == nil {
		return ""
	}
	var parts []string
	for _, p := range c.Stuck {
		parts = append(parts, fmt.Sprintf("pid %d %s in %s %s", p.PID, Say(p.Comm), Say(p.State), For(s, p.Since)))
	}
	for _, p := range c.Old {
		parts = append(parts, fmt.Sprintf("pid %d %s runs %s", p.PID, Say(p.Comm), For(s, p.Since)))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "; " + Count(c.Shims, "shim", "shims") + " in all"
}

// node describes the node as a whole; empty while that is not of interest.
func node(s *health.Snapshot) string {
	n := s.Facts.Evidence.Node
	if n == nil || !interesting(n) {
		return ""
	}
	pressures := []string{"pressure"}
	for _, p := range []struct {
		name       string
		some, full float64
	}{{"cpu", n.CPUSome, -1}, {"io", n.IOSome, n.IOFull}, {"memory", n.MemorySome, n.MemoryFull}} {
		if p.some < 0 {
			continue
		}
		share := fmt.Sprintf("%s %.0f%%", p.name, p.some)
		if p.full >= 0 {
			share += fmt.Sprintf("/%.0f%%", p.full)
		}
		pressures = append(pressures, share)
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

func interesting(n *health.Node) bool {
	for _, p := range []float64{n.CPUSome, n.MemorySome, n.MemoryFull, n.IOSome, n.IOFull} {
		if p >= interestingPressure {
			return true
		}
	}
	return n.FilesMax > 0 && float64(n.Files) >= interestingShare*float64(n.FilesMax) ||
		n.ThreadsMax > 0 && float64(n.Threads) >= interestingShare*float64(n.ThreadsMax)
}

// healthz says what the kubelet reports of itself; empty while it reports nothing
// but health.
func healthz(s *health.Snapshot) string {
	k := s.Facts.Evidence.Kubelet
	if k == nil {
		return ""
	}
	var parts []string
	switch {
	case !k.OK:
		out := "the kubelet's own check fails"
		if !k.FailedSince.IsZero() {
			out += " " + For(s, k.FailedSince)
		}
		parts = append(parts, strings.TrimSuffix(out+": "+Say(k.Detail), ": "))
	case k.Detail != "":
		parts = append(parts, Say(k.Detail))
	}
	if age := s.Age(k.LastSeen); age >= interestingAge {
		parts = append(parts, "its PLEG was last seen "+Seconds(age)+" ago")
	}
	return strings.Join(parts, "; ")
}

// docker says how the fresh dial of the Docker socket went, and describes dockerd
// and its containerd; empty behind every other runtime than cri-dockerd.
func docker(s *health.Snapshot) string {
	d := s.Facts.Evidence.Docker
	if d == nil || d.At.IsZero() {
		return ""
	}
	parts := []string{dial(s, &d.Probe, "ping")}
	for _, p := range []*health.DockerProcess{d.Daemon, d.Containerd} {
		if p != nil {
			parts = append(parts, dockerProcess(p)...)
		}
	}
	return strings.Join(parts, "; ")
}

// dockerProcess describes a process behind cri-dockerd.
func dockerProcess(d *health.DockerProcess) []string {
	var parts []string
	if p := d.Process; p != nil {
		who := fmt.Sprintf("pid %d %s", p.PID, Say(p.Comm))
		if !p.Alive {
			who += " is gone"
		}
		parts = append(append(parts, who), live(p)...)
	}
	if d.Frozen {
		parts = append(parts, "its cgroup is frozen")
	}
	if d.Queue != nil {
		parts = append(parts, queue(d.Queue, "nobody listens on "+Say(d.Socket)))
	}
	return parts
}

// missing names the sources of evidence that do not answer, and why.
func missing(s *health.Snapshot) string {
	var parts []string
	sources := s.Facts.Evidence.Sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		src := sources[name]
		if src.Up {
			continue
		}
		why := Shorten(Say(src.Err), shownDown)
		if src.Kept {
			why += "; its last sample still counts"
		}
		parts = append(parts, Say(name)+": "+why)
	}
	return strings.Join(parts, "; ")
}
