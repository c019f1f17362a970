package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// The phrases are the parts of a snapshot in words, the same for the terminal and
// the page. Every text from outside in them has gone through Say.

// Age says how long ago t was.
func Age(s *health.Snapshot, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Seconds(s.Age(t)) + " ago"
}

// For says for how long something has been so.
func For(s *health.Snapshot, t time.Time) string { return "for " + Seconds(s.Age(t)) }

// stateUnknown is the verdict of a plegd that cannot see the runtime.
const stateUnknown health.State = "unknown"

// Outlook is the prediction: whether the kubelet manages pods, and what the API
// shows for how long.
func Outlook(s *health.Snapshot) string {
	switch {
	case s.State == stateUnknown:
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
		return "the API may show NotReady until the next status update, " + Window(s.ReadyIn, s.ReadyInLatest)
	case s.NodeReady && s.NotReadyIn == nil:
		return "the API shows Ready"
	case s.NodeReady:
		return "the API still shows Ready for " + strings.TrimPrefix(Window(s.NotReadyIn, s.NotReadyInLatest), "in ")
	case s.ReadyIn != nil:
		return "the API shows NotReady until the next status update, " + Window(s.ReadyIn, s.ReadyInLatest)
	default:
		return "the API shows NotReady"
	}
}

// Settings says which of the kubelet's settings are in force and where they come
// from; empty where only plegd's defaults are known.
func Settings(s *health.Snapshot) string {
	c, k := &s.Facts.Config, s.Facts.Evidence.KubeletProcess
	if len(c.From) == 0 {
		return ""
	}
	part := func(what, setting string) string { return what + " (" + Say(c.From[setting]) + ")" }
	out := part("status update every "+Seconds(c.NodeStatusPeriod), health.SettingNodeStatusPeriod) + ", " +
		part("requests of "+Seconds(c.RPCTimeout)+" at most", health.SettingRequestTimeout)
	if !s.Started.IsZero() {
		out += ", kubelet started " + Age(s, s.Started)
	}
	if k == nil {
		return out
	}
	if e := s.Facts.Events; k.EventedPLEG && (e == nil || e.Mode != "evented") {
		out += ". The kubelet uses EventedPLEG: set --events=evented"
	}
	if k.Problem != "" {
		out += ". Not read: " + Say(k.Problem)
	}
	return out
}

// TimeLeft says until when the kubelet manages pods and when the node turns
// NotReady; empty while nothing points that way.
func TimeLeft(s *health.Snapshot) string {
	var parts []string
	for _, part := range []string{Rules(s), notReady(s)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

// Rules says since when, or how long until, the kubelet's rules fail.
func Rules(s *health.Snapshot) string {
	switch {
	case s.RulesFailIn == nil:
		return ""
	case *s.RulesFailIn > 0:
		return Left(*s.RulesFailIn) + " until the kubelet stops managing pods"
	case s.Since.IsZero() || s.State != health.StateUnhealthy:
		return "by its rules the kubelet manages no pods"
	case s.SyncLoopAllowed:
		return "by the kubelet's rules the pod network is down " + For(s, s.Since)
	default:
		return "the kubelet stopped managing pods " + Age(s, s.Since)
	}
}

// notReady says when the node turns NotReady.
func notReady(s *health.Snapshot) string {
	switch {
	case s.NotReadyIn == nil:
		return ""
	case !s.NodeReady && *s.NotReadyIn <= 0:
		return "by the model the node is NotReady now"
	default:
		return "the node turns NotReady " + Window(s.NotReadyIn, s.NotReadyInLatest) + ", if nothing changes"
	}
}

// Window says when something happens: in 76 to 86s, within 8s.
func Window(earliest, latest *time.Duration) string {
	switch {
	case latest == nil || Left(*earliest) == Left(*latest):
		return "in " + Left(*earliest)
	case *earliest <= 0:
		return "within " + Left(*latest)
	default:
		return "in " + Left(*earliest) + " to " + Left(*latest)
	}
}

// LastSeen says when the last successful relist started.
func LastSeen(s *health.Snapshot) string {
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

// InFlight says what the relist under way is doing; empty between two.
func InFlight(s *health.Snapshot) string {
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

// LastRelist says how the last relist went.
func LastRelist(s *health.Snapshot) string {
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
		out += "; at the kubelet's pace " + Seconds(l.Serial)
	}
	return out
}

// Error says why a call failed.
func Error(e *health.CallError) string { return Say(e.Operation) + ": " + errorCause(e) }

// errorCause says why, without which call it was.
func errorCause(e *health.CallError) string {
	out := Say(e.Code)
	if e.Bytes > 0 && e.Limit > 0 {
		return out + fmt.Sprintf(": the answer of %s is above the limit of %s", Bytes(e.Bytes), Bytes(e.Limit))
	}
	if e.Message != "" {
		out += ": " + Say(e.Message)
	}
	return out
}

// StatusCheck says what came of the kubelet's runtime status check.
func StatusCheck(s *health.Snapshot) string {
	c := &s.Facts.Status
	parts := []string{"last good " + Age(s, c.LastGood), condition("RuntimeReady", c.RuntimeReady), condition("NetworkReady", c.NetworkReady)}
	if !c.InFlightSince.IsZero() {
		parts = append(parts, "a call is under way "+For(s, c.InFlightSince))
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

// Probe says how the last fresh dial went.
func Probe(s *health.Snapshot) string {
	if s.Facts.Probe.At.IsZero() {
		return "none yet"
	}
	return dial(s, &s.Facts.Probe, "version")
}

// dial says how a fresh dial went; rpc is what was called at its end.
func dial(s *health.Snapshot, p *health.Probe, rpc string) string {
	var stages []string
	for _, stage := range []struct {
		name string
		took time.Duration
	}{{"connect", p.Connect}, {"settings", p.Settings}, {rpc, p.RPC}} {
		if stage.took > 0 {
			stages = append(stages, stage.name+" "+Seconds(stage.took))
		}
	}
	out := "answered"
	if !p.OK {
		out = "failed at " + Say(string(p.Stage)) + ": " + Say(string(p.Cause))
		if p.Detail != "" {
			out += " (" + Say(p.Detail) + ")"
		}
		if p.Failures > 1 {
			out += fmt.Sprintf(", %d in a row", p.Failures)
		}
	}
	out += ", " + Age(s, p.At)
	if len(stages) > 0 {
		out += "; " + strings.Join(stages, ", ")
	}
	return out
}

// Runtime says which runtime answers, and where.
func Runtime(s *health.Snapshot) string {
	var out string
	if r := &s.Facts.Runtime; r.Name != "" || r.Version != "" {
		out = strings.TrimSpace(Say(r.Name) + " " + Say(r.Version))
		if r.CRIVersion != "" {
			out += " (CRI " + Say(r.CRIVersion) + ")"
		}
		out += " at "
	}
	e := &s.Facts.Endpoint
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

// Pods says what runs on the node.
func Pods(s *health.Snapshot) string {
	p := s.Facts.Pods
	if p == nil {
		return "not counted yet"
	}
	states := []string{fmt.Sprintf("%d running", p.Containers["running"])}
	for _, state := range slices.Sorted(maps.Keys(p.Containers)) {
		if n := p.Containers[state]; n > 0 && state != "running" {
			states = append(states, fmt.Sprintf("%d %s", n, Say(state)))
		}
	}
	out := fmt.Sprintf("%d running; containers: %s", p.Running, strings.Join(states, ", "))
	if n := s.Facts.Relist.Reinspect; n > 0 {
		out += fmt.Sprintf("; %s for reinspection", Count(n, "pod waits", "pods wait"))
	}
	return out
}

// PodName names a pod.
func PodName(p *health.PodInspection) string { return Say(p.Namespace + "/" + p.Name) }

// PodTook returns how long the inspection of a pod took, or has been under way.
func PodTook(s *health.Snapshot, p *health.PodInspection) string {
	if p.Duration == 0 {
		return Seconds(s.Age(p.Start))
	}
	return Seconds(p.Duration)
}

// stuckAfter is how long an inspection is under way before it counts as stuck: by
// then it holds up the next relist.
const stuckAfter = time.Second

// StuckPods returns the inspections that are stuck.
func StuckPods(s *health.Snapshot) []health.PodInspection {
	return slices.DeleteFunc(slices.Clone(s.Facts.Relist.Inspecting), func(p health.PodInspection) bool { return s.Age(p.Start) < stuckAfter })
}

// SplitReasons returns the primary reason, nil when there is none, and the
// others.
func SplitReasons(v *health.Verdict) (primary *health.Active, others []health.Active) {
	for i := range v.Active {
		if v.Active[i].ID == v.Reason && primary == nil {
			primary = &v.Active[i]
			continue
		}
		others = append(others, v.Active[i])
	}
	return primary, others
}

// HasReason reports whether id is among the reasons.
func HasReason(reasons []health.Active, id string) bool {
	return slices.ContainsFunc(reasons, func(a health.Active) bool { return a.ID == id })
}

// Events says what state the event stream is in; "" where plegd listens to none.
func Events(s *health.Snapshot) string {
	e := s.Facts.Events
	if e == nil || e.Phase == "" {
		return ""
	}
	out := Say(e.Mode) + ": "
	switch e.Phase {
	case "streaming":
		out += "the stream holds"
	case "broken":
		out += fmt.Sprintf("the stream has failed %s", Count(e.Failures, "time", "times"))
		if e.FellBack {
			out += ", relying on relists alone"
		}
	case "refused":
		out += "left alone"
	case "unsupported", "ends_at_once":
		out += "the runtime sends none"
	default:
		out += "waiting for the stream"
	}
	if e.Detail != "" {
		out += " (" + Say(e.Detail) + ")"
	}
	var received uint64
	for _, n := range e.Received {
		received += n
	}
	if received == 0 {
		return out
	}
	out += fmt.Sprintf("; %d received", received)
	if !e.LastEvent.IsZero() {
		out += ", the last " + Age(s, e.LastEvent)
	}
	return out
}
