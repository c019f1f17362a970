package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// The phrases are the parts of a status document in words. The terminal and the
// page say the same thing with them. Every text from outside in them has gone
// through say.

// phraseAge says how long ago t was.
func phraseAge(d *StatusDocument, t *time.Time) string {
	if t == nil {
		return "never"
	}
	return FormatSeconds(d.Now.Sub(*t).Seconds()) + " ago"
}

// PhraseFor says since how long something stands.
func PhraseFor(d *StatusDocument, t time.Time) string {
	return "for " + FormatSeconds(d.Now.Sub(t).Seconds())
}

// PhraseKubelet says what the modelled kubelet writes into the Ready condition.
// Until plegd has watched for as long as the kubelet's rules take, that is not
// what the node's own kubelet writes: it may know better from before.
func PhraseKubelet(d *StatusDocument) string {
	k := &d.Kubelet
	switch {
	case health.State(d.State) == health.StateStarting && !k.NodeReady:
		return "one that started when plegd did would say: " + Say(d.KubeletMessage)
	case k.NodeReady && d.KubeletMessage == "":
		return "would call this node Ready"
	case k.NodeReady:
		return "would still call this node Ready; its message will be: " + Say(d.KubeletMessage)
	case k.ReadyIn != nil:
		return "would call this node NotReady until its next status update, " + PhraseWindow(k.ReadyIn, k.ReadyInLatest) + ": " + Say(d.KubeletMessage)
	default:
		return "would call this node NotReady: " + Say(d.KubeletMessage)
	}
}

// PhraseSettings says which of the kubelet's settings are in force and where they
// come from; empty where nothing is known but plegd's defaults.
func PhraseSettings(d *StatusDocument) string {
	k := &d.Kubelet
	if len(k.From) == 0 {
		return ""
	}
	part := func(what, setting string) string { return what + " (" + Say(k.From[setting]) + ")" }
	s := part("status update every "+FormatSeconds(k.NodeStatusPeriod), cri.SettingNodeStatusPeriod) + ", " +
		part("requests of "+FormatSeconds(k.RPCTimeout)+" at most", cri.SettingRequestTimeout)
	if k.Started != nil {
		s += ", kubelet started " + phraseAge(d, k.Started)
	}
	if k.EventedPLEG && d.Events.Mode != "evented" {
		s += ". The kubelet uses EventedPLEG: set --events=evented"
	}
	if k.Problem != "" {
		s += ". Not read: " + Say(k.Problem)
	}
	return s
}

// PhraseTimeLeft says until when the kubelet manages pods and when the node turns
// NotReady; empty while nothing points that way.
func PhraseTimeLeft(d *StatusDocument) string {
	var parts []string
	if s := PhraseRules(d); s != "" {
		parts = append(parts, s)
	}
	if s := phraseNotReady(d); s != "" {
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// PhraseRules says since when, or how long until, the kubelet's rules fail.
func PhraseRules(d *StatusDocument) string {
	fails := d.Kubelet.RulesFailIn
	switch {
	case fails == nil:
		return ""
	case *fails > 0:
		return FormatLeft(*fails) + " until the kubelet stops managing pods"
	case d.Since == nil || health.State(d.State) != health.StateUnhealthy:
		return "by its rules the kubelet manages no pods"
	case d.SyncLoopAllowed:
		return "by the kubelet's rules the pod network is down " + PhraseFor(d, *d.Since)
	default:
		return "the kubelet stopped managing pods " + phraseAge(d, d.Since)
	}
}

// phraseNotReady says when the node turns NotReady.
func phraseNotReady(d *StatusDocument) string {
	switch {
	case d.NotReadyIn == nil:
		return ""
	case !d.Kubelet.NodeReady && *d.NotReadyIn <= 0:
		return "by the model the node is NotReady now"
	default:
		return "the node turns NotReady " + PhraseWindow(d.NotReadyIn, d.NotReadyInLatest) + ", if nothing changes"
	}
}

// PhraseWindow says when something happens: in 76 to 86s, within 8s.
func PhraseWindow(earliest, latest *float64) string {
	switch {
	case latest == nil || FormatLeft(*earliest) == FormatLeft(*latest):
		return "in " + FormatLeft(*earliest)
	case *earliest <= 0:
		return "within " + FormatLeft(*latest)
	default:
		return "in " + FormatLeft(*earliest) + " to " + FormatLeft(*latest)
	}
}

// PhraseLastSeen says when the last successful relist started.
func PhraseLastSeen(d *StatusDocument) string {
	threshold := "threshold " + FormatSeconds(d.Threshold)
	if d.LastSeenAge == nil {
		return "never; " + threshold
	}
	s := FormatSeconds(*d.LastSeenAge) + " ago; " + threshold
	if m := d.ModelledLastSeenAge; m != nil && *m > *d.LastSeenAge+d.RelistPeriod {
		s += "; the kubelet's own pace: " + FormatSeconds(*m) + " ago"
	}
	return s
}

// PhraseInFlight says what the relist under way is doing; empty between two.
func PhraseInFlight(d *StatusDocument) string {
	f := d.Relist.InFlight
	if f == nil {
		return ""
	}
	s := "under way for " + FormatSeconds(f.Seconds)
	if phase := FormatSeconds(f.PhaseSeconds); phase == FormatSeconds(f.Seconds) {
		s += " in " + Say(f.Phase)
	} else {
		s += ", for " + phase + " in " + Say(f.Phase)
	}
	if f.Pods > 0 {
		s += fmt.Sprintf(", %d of %s inspected", f.Inspected, FormatCount(f.Pods, "pod", "pods"))
	}
	return s
}

// PhraseLastRelist says how the last relist went.
func PhraseLastRelist(d *StatusDocument) string {
	l := d.Relist.Last
	if l == nil {
		return "none has ended yet"
	}
	took := FormatSeconds(l.Seconds)
	if l.Error != nil {
		s := fmt.Sprintf("failed after %s in %s", took, phraseCode(l.Error))
		if d.Relist.Failures > 1 {
			s += fmt.Sprintf(" (%d in a row)", d.Relist.Failures)
		}
		return s
	}
	s := fmt.Sprintf("took %s: lists %s + %s", took, FormatSeconds(l.ListPodSandbox), FormatSeconds(l.ListContainers))
	if t := d.Relist.TypicalLists; t != nil {
		s += ", typically " + FormatSeconds(*t) + " together"
	}
	if l.Inspected > 0 {
		s += fmt.Sprintf(", %s inspected", FormatCount(l.Inspected, "pod", "pods"))
		if l.Failed > 0 {
			s += fmt.Sprintf(" (%d failed)", l.Failed)
		}
		s += "; at the kubelet's pace " + FormatSeconds(l.Serial)
	}
	return s
}

// phraseCode says which call failed and with what code. The words of the error
// stand once, beside the operation.
func phraseCode(e *ErrorDocument) string { return Say(e.Operation) + ": " + Say(e.Code) }

// PhraseError says why a call failed.
func PhraseError(e *ErrorDocument) string {
	return Say(e.Operation) + ": " + phraseReason(e)
}

// phraseReason says why, without which call it was.
func phraseReason(e *ErrorDocument) string {
	s := Say(e.Code)
	if e.Bytes > 0 && e.Limit > 0 {
		return s + fmt.Sprintf(": the answer of %s is above the limit of %s", formatBytes(e.Bytes), formatBytes(e.Limit))
	}
	if e.Message != "" {
		s += ": " + Say(e.Message)
	}
	return s
}

// PhraseStatusCheck says how the runtime status check stands.
func PhraseStatusCheck(d *StatusDocument) string {
	c := d.StatusCheck
	parts := []string{"last good never"}
	if c.LastGoodAge != nil {
		parts[0] = "last good " + FormatSeconds(*c.LastGoodAge) + " ago"
	}
	parts = append(parts, phraseCondition("RuntimeReady", c.Conditions.RuntimeReady),
		phraseCondition("NetworkReady", c.Conditions.NetworkReady))
	if c.InFlightSeconds != nil {
		parts = append(parts, "a call is under way for "+FormatSeconds(*c.InFlightSeconds))
	}
	if c.LastError != nil {
		parts = append(parts, "the last call failed: "+Say(c.LastError.Code))
	}
	return strings.Join(parts, "; ")
}

func phraseCondition(name string, c *ConditionDocument) string {
	switch {
	case c == nil:
		return name + " unknown"
	case c.Status:
		return name + " yes"
	}
	s := name + " no"
	if c.Reason != "" || c.Message != "" {
		s += " (" + strings.TrimPrefix(Say(c.Reason)+": "+Say(c.Message), ": ") + ")"
	}
	return s
}

// PhraseProbe says how the last fresh dial went.
func PhraseProbe(d *StatusDocument) string {
	if d.Probe == nil {
		return "none yet"
	}
	return phraseDial(d, d.Probe, "version")
}

// phraseDial says how a fresh dial went; rpc is what was asked at its end.
func phraseDial(d *StatusDocument, p *ProbeDocument, rpc string) string {
	var stages []string
	for _, stage := range []struct {
		name    string
		seconds *float64
	}{{"connect", p.ConnectSeconds}, {"settings", p.SettingsSeconds}, {rpc, p.RPCSeconds}} {
		if stage.seconds != nil {
			stages = append(stages, stage.name+" "+FormatSeconds(*stage.seconds))
		}
	}
	s := "answered"
	if !p.OK {
		s = "failed at " + Say(p.Stage) + ": " + Say(p.Cause)
		if p.Detail != "" {
			s += " (" + Say(p.Detail) + ")"
		}
		if p.Failures > 1 {
			s += fmt.Sprintf(", %d in a row", p.Failures)
		}
	}
	s += ", " + phraseAge(d, &p.At)
	if len(stages) > 0 {
		s += "; " + strings.Join(stages, ", ")
	}
	return s
}

// PhraseRuntime says which runtime answers, and where.
func PhraseRuntime(d *StatusDocument) string {
	var s string
	if r := d.Runtime; r != nil {
		s = strings.TrimSpace(Say(r.Name) + " " + Say(r.Version))
		if r.CRIVersion != "" {
			s += " (CRI " + Say(r.CRIVersion) + ")"
		}
		s += " at "
	}
	e := d.Endpoint
	if e.Path == "" {
		s += "no socket found"
		if len(e.Searched) > 0 {
			s += "; looked at " + Say(strings.Join(e.Searched, ", "))
		}
		return s
	}
	s += Say(e.Path)
	if e.Source != "" {
		s += ", from " + Say(e.Source)
	}
	return s
}

// PhrasePods says what runs on the node.
func PhrasePods(d *StatusDocument) string {
	p := d.Pods
	if p.Running == nil {
		return "not counted yet"
	}
	s := fmt.Sprintf("%d running; containers:", *p.Running)
	sep := " "
	for state := range cri.NumStates {
		name := cri.State(state).String()
		n := p.Containers[name]
		if n == 0 && name != cri.StateRunning.String() {
			continue
		}
		s += fmt.Sprintf("%s%d %s", sep, n, name)
		sep = ", "
	}
	if p.Reinspect > 0 {
		s += fmt.Sprintf("; %s for reinspection", FormatCount(p.Reinspect, "pod waits", "pods wait"))
	}
	return s
}

// PhrasePod names a pod, or says that there is one.
func PhrasePod(p *PodDocument) string {
	if p == nil {
		return "a pod (names need authentication)"
	}
	return Say(p.Namespace + "/" + p.Name)
}

// SplitReasons returns the primary reason, nil when there is none, and the
// others.
func SplitReasons(d *StatusDocument) (primary *ReasonDocument, others []ReasonDocument) {
	for i := range d.Reasons {
		if d.Reasons[i].ID == d.Reason && primary == nil {
			primary = &d.Reasons[i]
			continue
		}
		others = append(others, d.Reasons[i])
	}
	return primary, others
}

// HasReason reports whether id is among the reasons.
func HasReason(reasons []ReasonDocument, id string) bool {
	for _, r := range reasons {
		if r.ID == id {
			return true
		}
	}
	return false
}
