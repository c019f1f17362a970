package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// A phrase is one part of a snapshot in words. Every text from outside in it has gone
// through Printable.

// age says how long ago t was.
func age(s *facts.Snapshot, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return facts.Seconds(s.Age(t)) + " ago"
}

// lastingFor says for how long something has been so.
func lastingFor(s *facts.Snapshot, t time.Time) string { return "for " + facts.Seconds(s.Age(t)) }

// lastSeen says when the last successful relist started.
func lastSeen(s *facts.Snapshot) string {
	threshold := "threshold " + facts.Seconds(s.Threshold)
	if s.LastSeen.IsZero() {
		return "never; " + threshold
	}
	out := facts.Seconds(s.LastSeenAge) + " ago; " + threshold
	if !s.ModelledLastSeen.IsZero() && s.ModelledAge > s.LastSeenAge+s.Facts.Config.RelistPeriod {
		out += "; the kubelet's own pace: " + facts.Seconds(s.ModelledAge) + " ago"
	}
	return out
}

// inFlight says what the relist under way is doing; empty between two.
func inFlight(s *facts.Snapshot) string {
	f := s.Facts.Relist.InFlight
	if f == nil {
		return ""
	}
	out := "under way for " + facts.Seconds(s.Age(f.Start)) + " in " + Printable(string(f.Phase))
	if f.Pods > 0 {
		out += fmt.Sprintf(", %d of %s inspected", f.Inspected, facts.Count(f.Pods, "pod", "pods"))
	}
	return out
}

// lastRelist says how the last relist went.
func lastRelist(s *facts.Snapshot) string {
	l := s.Facts.Relist.Last
	if l == nil {
		return "none has ended yet"
	}
	took := facts.Seconds(l.End.Sub(l.Start))
	if l.Err != nil {
		return fmt.Sprintf("failed after %s in %s: %s (%d in a row)", took, Printable(l.Err.Operation), Printable(l.Err.Code),
			s.Facts.Relist.Failures)
	}
	return fmt.Sprintf("took %s: lists %s + %s, %s inspected (%d failed)", took, facts.Seconds(l.ListPodSandbox),
		facts.Seconds(l.ListContainers), facts.Count(l.Inspected, "pod", "pods"), l.Failed)
}

// errorCause says why a call failed.
func errorCause(e *facts.CallError) string {
	return strings.TrimSuffix(Printable(e.Code)+": "+Printable(e.Message), ": ")
}

// statusCheck says how the runtime's Status calls went.
func statusCheck(s *facts.Snapshot) string {
	c := &s.Facts.Status
	var pending, failed string
	if !c.InFlightSince.IsZero() {
		pending = "a call is under way " + lastingFor(s, c.InFlightSince)
	}
	if c.LastErr != nil {
		failed = "the last call failed: " + Printable(c.LastErr.Code)
	}
	return joined("last good "+age(s, c.LastGood), condition("RuntimeReady", c.RuntimeReady),
		condition("NetworkReady", c.NetworkReady), pending, failed)
}

func condition(name string, c *facts.Condition) string {
	switch {
	case c == nil:
		return name + " unknown"
	case c.Status:
		return name + " yes"
	}
	return strings.TrimSuffix(name+" no ("+strings.TrimPrefix(Printable(c.Reason)+": "+Printable(c.Message), ": ")+")", " ()")
}

// dial says how the last fresh dial of a socket went.
func dial(s *facts.Snapshot, p *facts.Probe) string {
	if p.At.IsZero() {
		return "none yet"
	}
	if p.OK {
		return "answered " + age(s, p.At) + " within " + facts.Seconds(p.Connect+p.Settings+p.RPC)
	}
	return fmt.Sprintf("failed %s: %s (%d in a row)", age(s, p.At), Printable(health.ProbeText(p)), max(1, p.Failures))
}

// runtime says which runtime answers, and where.
func runtime(s *facts.Snapshot) string {
	r := &s.Facts.Runtime
	e := &s.Facts.Endpoint
	name := strings.TrimSpace(Printable(r.Name) + " " + Printable(r.Version))
	if e.Path == "" {
		return joined(name, "no socket found, looked at "+Printable(strings.Join(e.Searched, ", ")))
	}
	return strings.TrimSuffix(strings.TrimPrefix(name+" at "+Printable(e.Path)+", from "+Printable(e.Source), " at "), ", from ")
}

// process describes the process behind the socket, and its accept queue; empty
// while neither is known.
func process(s *facts.Snapshot) string {
	e := &s.Facts.Evidence
	var throttled, restarts string
	if c := e.Cgroup; c != nil && c.Throttled >= 0.01 {
		throttled = fmt.Sprintf("throttled for %.2fs a second", c.Throttled)
	}
	if p := e.Process; p != nil && p.RestartsTotal > 0 {
		restarts = facts.Count(p.RestartsTotal, "restart seen", "restarts seen")
	}
	return joined(server(s, &e.Hop), throttled, restarts)
}

// server describes a process that serves a socket.
func server(s *facts.Snapshot, h *facts.Hop) string {
	var id, state, queue, frozen string
	if p := h.Process; p != nil {
		id = fmt.Sprintf("pid %d %s", p.PID, Printable(p.Comm))
		switch {
		case !p.Alive:
			id += " is gone"
		case !p.Start.IsZero():
			id += ", up " + facts.Seconds(s.Age(p.Start))
		}
		if p.Alive {
			state = health.ProcessText(p)
		}
	}
	if q := h.Queue; q != nil {
		queue = "nobody listens"
		if q.Listening {
			queue = fmt.Sprintf("queue %d of %d", q.Length, q.Limit)
		}
	}
	if h.Cgroup != nil && h.Cgroup.Frozen {
		frozen = "its cgroup is frozen"
	}
	return joined(id, state, queue, frozen)
}

// hops describes the processes behind the runtime that its calls pass through, a line for
// each; empty for most runtimes.
func hops(s *facts.Snapshot) (out []string) {
	for i := range s.Facts.Evidence.Hops {
		h := &s.Facts.Evidence.Hops[i]
		answer := ""
		if h.Answer != nil {
			answer = dial(s, &h.Answer.Probe)
		}
		out = append(out, joined(Printable(h.Socket), answer, server(s, h)))
	}
	return out
}

// missing names the sources of evidence that do not answer and the parts that they could not
// read, and why.
func missing(s *facts.Snapshot) string {
	var parts []string
	sources := s.Facts.Evidence.Sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		source := sources[name]
		if !source.Up {
			why := shorten(Printable(source.Err), 160)
			if source.Kept {
				why += "; its last sample still counts"
			}
			parts = append(parts, Printable(name)+": "+why)
		}
		for _, part := range slices.Sorted(maps.Keys(source.Unread)) {
			why := shorten(Printable(source.Unread[part]), 160)
			parts = append(parts, fmt.Sprintf("%s, %s: %s", Printable(name), Printable(part), why))
		}
	}
	return strings.Join(parts, "; ")
}
