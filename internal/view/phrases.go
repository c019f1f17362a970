package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// A phrase is one part of a snapshot in words. Every text from outside in it has gone
// through Say.

// age says how long ago t was.
func age(s *health.Snapshot, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Seconds(s.Age(t)) + " ago"
}

// since says for how long something has been so.
func since(s *health.Snapshot, t time.Time) string { return "for " + Seconds(s.Age(t)) }

// outlook is the prediction: whether the kubelet manages pods, and what the API
// shows for how long.
func outlook(s *health.Snapshot) string {
	switch {
	case s.State == health.StateUnknown:
		return "none: plegd cannot see the runtime, others may"
	case s.State == health.StateStarting && !s.NodeReady:
		return "none yet: no relist has succeeded"
	}
	out := managing(s) + "; " + apiShows(s)
	if n := s.Facts.NodeStatus; n != nil && n.Unknown {
		out += "; the kubelet writes no status"
	}
	if s.RulesFailIn != nil && *s.RulesFailIn > 0 || s.NotReadyIn != nil && *s.NotReadyIn > 0 {
		out += ", if nothing changes"
	}
	return out
}

func managing(s *health.Snapshot) string {
	switch {
	case s.RulesFailIn == nil:
		return "managing pods"
	case *s.RulesFailIn > 0:
		return "managing pods for another " + Left(*s.RulesFailIn)
	case s.SyncLoopAllowed:
		return "the pod network is down"
	default:
		return "not managing pods"
	}
}

func apiShows(s *health.Snapshot) string {
	switch {
	case s.NodeReady && s.ReadyIn != nil:
		return "the API may show NotReady until the next status update, " + window(s.ReadyIn, s.ReadyInLatest)
	case s.NodeReady && s.NotReadyIn == nil:
		return "the API shows Ready"
	case s.NodeReady && *s.NotReadyIn <= 0 && s.NotReadyInLatest != nil:
		return "the API may still show Ready, for " + Left(*s.NotReadyInLatest) + " at most"
	case s.NodeReady:
		return "the API still shows Ready for " + strings.TrimPrefix(window(s.NotReadyIn, s.NotReadyInLatest), "in ")
	case s.ReadyIn != nil:
		return "the API shows NotReady until the next status update, " + window(s.ReadyIn, s.ReadyInLatest)
	default:
		return "the API shows NotReady"
	}
}

// window says when something happens: in 76s to 86s, within 8s.
func window(earliest, latest *time.Duration) string {
	switch {
	case latest == nil || Left(*earliest) == Left(*latest):
		return "in " + Left(*earliest)
	case *earliest <= 0:
		return "within " + Left(*latest)
	default:
		return "in " + Left(*earliest) + " to " + Left(*latest)
	}
}

// kubelet describes the node's kubelet itself.
func kubelet(s *health.Snapshot) string {
	p, k := s.Facts.Evidence.KubeletProcess, s.Facts.Evidence.Kubelet
	var parts []string
	switch {
	case p != nil:
		parts = append(parts, fmt.Sprintf("pid %d", p.PID))
	case k == nil || !k.Seen:
		parts = append(parts, "none is seen on this node")
	}
	if !s.Started.IsZero() {
		parts = append(parts, "started "+age(s, s.Started))
	}
	switch {
	case k == nil:
	case k.OK:
		parts = append(parts, "its healthz answers ok")
	case !k.FailedSince.IsZero():
		parts = append(parts, "its healthz fails "+since(s, k.FailedSince))
	default:
		parts = append(parts, "its healthz fails")
	}
	if k != nil && k.Detail != "" {
		parts[len(parts)-1] += ": " + Shorten(Say(k.Detail), 160)
	}
	if k != nil && !k.LastSeen.IsZero() {
		parts = append(parts, "its own PLEG was last seen "+age(s, k.LastSeen))
	}
	return strings.Join(parts, "; ")
}

// settings says which of the kubelet's settings are effective and where they come
// from; empty where only plegd's defaults are known.
func settings(s *health.Snapshot) string {
	c, k := &s.Facts.Config, s.Facts.Evidence.KubeletProcess
	if len(c.From) == 0 {
		return ""
	}
	part := func(what string, d time.Duration, setting string) string {
		return what + " " + Seconds(d) + " (" + Say(c.From[setting]) + ")"
	}
	out := part("status update every", c.NodeStatusPeriod, health.SettingNodeStatusPeriod) + ", " +
		part("requests of at most", c.RPCTimeout, health.SettingRequestTimeout)
	if k != nil && k.EventedPLEG && (s.Facts.Events == nil || s.Facts.Events.Mode != "evented") {
		switch relistsLess, known := s.Facts.Evidence.Kubelet.RelistsLess(); {
		case !known:
			out += ". The kubelet uses EventedPLEG: one before 1.37 tolerates relists 300 s apart (--events=evented)"
		case relistsLess:
			out += ". The kubelet uses EventedPLEG: set --events=evented"
		}
	}
	if k != nil && k.Problem != "" {
		out += ". Not read: " + Say(k.Problem)
	}
	return out
}

// lastSeen says when the last successful relist started.
func lastSeen(s *health.Snapshot) string {
	threshold := "threshold " + Seconds(s.Threshold)
	if s.LastSeen.IsZero() {
		return "never; " + threshold
	}
	out := Seconds(s.LastSeenAge) + " ago; " + threshold
	if !s.ModelledLastSeen.IsZero() && s.ModelledAge > s.LastSeenAge+s.Facts.Config.RelistPeriod {
		out += "; the kubelet's own pace: " + Seconds(s.ModelledAge) + " ago"
	}
	return out
}

// inFlight says what the relist under way is doing; empty between two.
func inFlight(s *health.Snapshot) string {
	f := s.Facts.Relist.InFlight
	if f == nil {
		return ""
	}
	total, phase := Seconds(s.Age(f.Start)), Seconds(s.Age(f.PhaseStart))
	out := "under way for " + total
	if phase != total {
		out += ", for " + phase
	}
	out += " in " + Say(string(f.Phase))
	if f.Pods > 0 {
		out += fmt.Sprintf(", %d of %s inspected", f.Inspected, Count(f.Pods, "pod", "pods"))
	}
	return out
}

// lastRelist says how the last relist went.
func lastRelist(s *health.Snapshot) string {
	l := s.Facts.Relist.Last
	if l == nil {
		return "none has ended yet"
	}
	took := Seconds(l.End.Sub(l.Start))
	if l.Err != nil {
		out := fmt.Sprintf("failed after %s in %s: %s", took, Say(l.Err.Operation), Say(l.Err.Code))
		if n := s.Facts.Relist.Failures; n > 1 {
			out += fmt.Sprintf(" (%d in a row)", n)
		}
		return out
	}
	out := fmt.Sprintf("took %s: lists %s + %s", took, Seconds(l.ListPodSandbox), Seconds(l.ListContainers))
	if lists := slices.Sorted(slices.Values(s.Facts.Relist.Lists)); len(lists) > 0 {
		out += ", typically " + Seconds(lists[len(lists)/2]) + " together"
	}
	if l.Inspected > 0 {
		out += fmt.Sprintf(", %s inspected", Count(l.Inspected, "pod", "pods"))
		if l.Failed > 0 {
			out += fmt.Sprintf(" (%d failed)", l.Failed)
		}
	}
	return out
}

// errorCause says why a call failed.
func errorCause(e *health.CallError) string {
	return strings.TrimSuffix(Say(e.Code)+": "+Say(e.Message), ": ")
}

// statusCheck says how the runtime's Status calls went.
func statusCheck(s *health.Snapshot) string {
	c := &s.Facts.Status
	parts := []string{
		"last good " + age(s, c.LastGood),
		condition("RuntimeReady", c.RuntimeReady), condition("NetworkReady", c.NetworkReady),
	}
	if !c.InFlightSince.IsZero() {
		parts = append(parts, "a call is under way "+since(s, c.InFlightSince))
	}
	if c.LastErr != nil {
		parts = append(parts, "the last call failed: "+Say(c.LastErr.Code))
	}
	return strings.Join(parts, "; ")
}

func condition(name string, c *health.Condition) string {
	switch {
	case c == nil:
		return name + " unknown"
	case c.Status:
		return name + " yes"
	}
	out := name + " no"
	if c.Reason != "" || c.Message != "" {
		out += " (" + strings.TrimPrefix(Say(c.Reason)+": "+Say(c.Message), ": ") + ")"
	}
	return out
}

// probe says how the last fresh dial went.
func probe(s *health.Snapshot) string {
	if s.Facts.Probe.At.IsZero() {
		return "none yet"
	}
	return dial(s, &s.Facts.Probe)
}

func dial(s *health.Snapshot, p *health.Probe) string {
	out := "answered " + age(s, p.At) + " within " + Seconds(p.Connect+p.Settings+p.RPC)
	if !p.OK {
		out = "failed " + age(s, p.At) + ": " + Say(health.ProbeText(p))
		if p.Failures > 1 {
			out += fmt.Sprintf(" (%d in a row)", p.Failures)
		}
	}
	return out
}

// runtime says which runtime answers, and where.
func runtime(s *health.Snapshot) string {
	out, e := runtimeName(s.Facts.Runtime), &s.Facts.Endpoint
	if out != "" {
		out += " at "
	}
	if e.Path == "" {
		out += "no socket found"
		if len(e.Searched) > 0 {
			out += "; looked at " + Say(strings.Join(e.Searched, ", "))
		}
		return out
	}
	out += Say(e.Path)
	if e.Source != "" {
		out += ", from " + Say(e.Source)
	}
	return out
}

func runtimeName(r health.Runtime) string {
	return strings.TrimSpace(Say(r.Name) + " " + Say(r.Version))
}

// process describes the process behind the socket, and its accept queue; empty
// while neither is known.
func process(s *health.Snapshot) string {
	e := &s.Facts.Evidence
	parts := server(s, e.Process, e.Queue, e.Cgroup != nil && e.Cgroup.Frozen)
	if c := e.Cgroup; c != nil && c.Throttled >= 0.01 {
		parts = append(parts, fmt.Sprintf("throttled for %.2fs a second", c.Throttled))
	}
	if p := e.Process; p != nil && p.RestartsTotal > 0 {
		parts = append(parts, Count(p.RestartsTotal, "restart seen", "restarts seen"))
	}
	return strings.Join(parts, "; ")
}

// server describes a process that serves a socket.
func server(s *health.Snapshot, p *health.Process, q *health.Queue, frozen bool) (parts []string) {
	switch {
	case p == nil:
	case !p.Alive:
		parts = append(parts, fmt.Sprintf("pid %d %s is gone", p.PID, Say(p.Comm)))
	default:
		who := fmt.Sprintf("pid %d %s", p.PID, Say(p.Comm))
		if !p.Start.IsZero() {
			who += ", up " + Seconds(s.Age(p.Start))
		}
		parts = append(parts, who)
		if text := health.ProcessText(p); text != "" {
			parts = append(parts, text)
		}
	}
	switch {
	case q == nil:
	case q.Listening:
		parts = append(parts, fmt.Sprintf("queue %d of %d", q.Length, q.Limit))
	default:
		parts = append(parts, "nobody listens")
	}
	if frozen {
		parts = append(parts, "its cgroup is frozen")
	}
	return parts
}

// hops describes the processes behind the runtime that its calls pass through; empty for
// most runtimes.
func hops(s *health.Snapshot) string {
	var parts []string
	for i := range s.Facts.Evidence.Hops {
		h := &s.Facts.Evidence.Hops[i]
		out := []string{Say(h.Socket)}
		if h.Answer != nil {
			out[0] += " " + dial(s, &h.Answer.Probe)
		}
		out = append(out, server(s, h.Process, h.Queue, h.Cgroup != nil && h.Cgroup.Frozen)...)
		parts = append(parts, strings.Join(out, "; "))
	}
	return strings.Join(parts, " | ")
}

// missing names the sources of evidence that do not answer, and why.
func missing(s *health.Snapshot) string {
	var parts []string
	sources := s.Facts.Evidence.Sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if src := sources[name]; !src.Up {
			why := Shorten(Say(src.Err), 160)
			if src.Kept {
				why += "; its last sample still counts"
			}
			parts = append(parts, Say(name)+": "+why)
		}
	}
	return strings.Join(parts, "; ")
}

// podCounts says what runs on the node.
func podCounts(s *health.Snapshot) string {
	p := s.Facts.Pods
	if p == nil {
		return "not counted yet"
	}
	out := Count(p.Running, "runs", "run")
	for _, state := range slices.Sorted(maps.Keys(p.Containers)) {
		if n := p.Containers[state]; n > 0 {
			out += fmt.Sprintf("; %s %s", Count(n, "container", "containers"), Say(state))
		}
	}
	if n := s.Facts.Relist.Reinspect; n > 0 {
		out += fmt.Sprintf("; %s for reinspection", Count(n, "pod waits", "pods wait"))
	}
	return out
}

// events says what state the event stream is in; "" where plegd listens to none.
func events(s *health.Snapshot) string {
	e := s.Facts.Events
	if e == nil || e.Phase == "" {
		return ""
	}
	out := Say(e.Mode) + ": " + Say(strings.ReplaceAll(e.Phase, "_", " "))
	if e.Detail != "" {
		out += " (" + Say(e.Detail) + ")"
	}
	return out + "; last event: " + age(s, e.LastEvent)
}
