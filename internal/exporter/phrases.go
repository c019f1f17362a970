package exporter

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
	return formatSeconds(d.Now.Sub(*t).Seconds()) + " ago"
}

// phraseFor says since how long something stands.
func phraseFor(d *StatusDocument, t time.Time) string {
	return "for " + formatSeconds(d.Now.Sub(t).Seconds())
}

// phraseKubelet says what the modelled kubelet writes into the Ready condition.
// Until plegd has watched for as long as the kubelet's rules take, that is not
// what the node's own kubelet writes: it may know better from before.
func phraseKubelet(d *StatusDocument) string {
	k := &d.Kubelet
	switch {
	case health.State(d.State) == health.StateStarting && !k.NodeReady:
		return "one that started when plegd did would say: " + say(d.KubeletMessage)
	case k.NodeReady && d.KubeletMessage == "":
		return "would call this node Ready"
	case k.NodeReady:
		return "would still call this node Ready; its message will be: " + say(d.KubeletMessage)
	case k.ReadyIn != nil:
		return "would call this node NotReady until its next status update, " + phraseWindow(k.ReadyIn, k.ReadyInLatest) + ": " + say(d.KubeletMessage)
	default:
		return "would call this node NotReady: " + say(d.KubeletMessage)
	}
}

// phraseSettings says which of the kubelet's settings are in force and where they
// come from; empty where nothing is known but plegd's defaults.
func phraseSettings(d *StatusDocument) string {
	k := &d.Kubelet
	if len(k.From) == 0 {
		return ""
	}
	part := func(what, setting string) string { return what + " (" + say(k.From[setting]) + ")" }
	s := part("status update every "+formatSeconds(k.NodeStatusPeriod), cri.SettingNodeStatusPeriod) + ", " +
		part("requests of "+formatSeconds(k.RPCTimeout)+" at most", cri.SettingRequestTimeout)
	if k.Started != nil {
		s += ", kubelet started " + phraseAge(d, k.Started)
	}
	if k.EventedPLEG && d.Events.Mode != "evented" {
		s += ". The kubelet uses EventedPLEG: set --events=evented"
	}
	if k.Problem != "" {
		s += ". Not read: " + say(k.Problem)
	}
	return s
}

// phraseTimeLeft says until when the kubelet manages pods and when the node turns
// NotReady; empty while nothing points that way.
func phraseTimeLeft(d *StatusDocument) string {
	var parts []string
	if s := phraseRules(d); s != "" {
		parts = append(parts, s)
	}
	if s := phraseNotReady(d); s != "" {
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// phraseRules says since when, or how long until, the kubelet's rules fail.
func phraseRules(d *StatusDocument) string {
	fails := d.Kubelet.RulesFailIn
	switch {
	case fails == nil:
		return ""
	case *fails > 0:
		return formatLeft(*fails) + " until the kubelet stops managing pods"
	case d.Since == nil || health.State(d.State) != health.StateUnhealthy:
		return "by its rules the kubelet manages no pods"
	case d.SyncLoopAllowed:
		return "by the kubelet's rules the pod network is down " + phraseFor(d, *d.Since)
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
		return "the node turns NotReady " + phraseWindow(d.NotReadyIn, d.NotReadyInLatest) + ", if nothing changes"
	}
}

// phraseWindow says when something happens: in 76 to 86s, within 8s.
func phraseWindow(earliest, latest *float64) string {
	switch {
	case latest == nil || formatLeft(*earliest) == formatLeft(*latest):
		return "in " + formatLeft(*earliest)
	case *earliest <= 0:
		return "within " + formatLeft(*latest)
	default:
		return "in " + formatLeft(*earliest) + " to " + formatLeft(*latest)
	}
}

// phraseLastSeen says when the last successful relist started.
func phraseLastSeen(d *StatusDocument) string {
	threshold := "threshold " + formatSeconds(d.Threshold)
	if d.LastSeenAge == nil {
		return "never; " + threshold
	}
	s := formatSeconds(*d.LastSeenAge) + " ago; " + threshold
	if m := d.ModelledLastSeenAge; m != nil && *m > *d.LastSeenAge+d.RelistPeriod {
		s += "; the kubelet's own pace: " + formatSeconds(*m) + " ago"
	}
	return s
}

// phraseInFlight says what the relist under way is doing; empty between two.
func phraseInFlight(d *StatusDocument) string {
	f := d.Relist.InFlight
	if f == nil {
		return ""
	}
	s := "under way for " + formatSeconds(f.Seconds)
	if phase := formatSeconds(f.PhaseSeconds); phase == formatSeconds(f.Seconds) {
		s += " in " + say(f.Phase)
	} else {
		s += ", for " + phase + " in " + say(f.Phase)
	}
	if f.Pods > 0 {
		s += fmt.Sprintf(", %d of %s inspected", f.Inspected, formatCount(f.Pods, "pod", "pods"))
	}
	return s
}

// phraseLastRelist says how the last relist went.
func phraseLastRelist(d *StatusDocument) string {
	l := d.Relist.Last
	if l == nil {
		return "none has ended yet"
	}
	took := formatSeconds(l.Seconds)
	if l.Error != nil {
		s := fmt.Sprintf("failed after %s in %s", took, phraseCode(l.Error))
		if d.Relist.Failures > 1 {
			s += fmt.Sprintf(" (%d in a row)", d.Relist.Failures)
		}
		return s
	}
	s := fmt.Sprintf("took %s: lists %s + %s", took, formatSeconds(l.ListPodSandbox), formatSeconds(l.ListContainers))
	if t := d.Relist.TypicalLists; t != nil {
		s += ", typically " + formatSeconds(*t) + " together"
	}
	if l.Inspected > 0 {
		s += fmt.Sprintf(", %s inspected", formatCount(l.Inspected, "pod", "pods"))
		if l.Failed > 0 {
			s += fmt.Sprintf(" (%d failed)", l.Failed)
		}
		s += "; at the kubelet's pace " + formatSeconds(l.Serial)
	}
	return s
}

// phraseCode says which call failed and with what code. The words of the error
// stand once, beside the operation.
func phraseCode(e *ErrorDocument) string { return say(e.Operation) + ": " + say(e.Code) }

// phraseError says why a call failed.
func phraseError(e *ErrorDocument) string {
	return say(e.Operation) + ": " + phraseReason(e)
}

// phraseReason says why, without which call it was.
func phraseReason(e *ErrorDocument) string {
	s := say(e.Code)
	if e.Bytes > 0 && e.Limit > 0 {
		return s + fmt.Sprintf(": the answer of %s is above the limit of %s", formatBytes(e.Bytes), formatBytes(e.Limit))
	}
	if e.Message != "" {
		s += ": " + say(e.Message)
	}
	return s
}

// phraseStatusCheck says how the runtime status check stands.
func phraseStatusCheck(d *StatusDocument) string {
	c := d.StatusCheck
	parts := []string{"last good never"}
	if c.LastGoodAge != nil {
		parts[0] = "last good " + formatSeconds(*c.LastGoodAge) + " ago"
	}
	parts = append(parts, phraseCondition("RuntimeReady", c.Conditions.RuntimeReady),
		phraseCondition("NetworkReady", c.Conditions.NetworkReady))
	if c.InFlightSeconds != nil {
		parts = append(parts, "a call is under way for "+formatSeconds(*c.InFlightSeconds))
	}
	if c.LastError != nil {
		parts = append(parts, "the last call failed: "+say(c.LastError.Code))
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
		s += " (" + strings.TrimPrefix(say(c.Reason)+": "+say(c.Message), ": ") + ")"
	}
	return s
}

// phraseProbe says how the last fresh dial went.
func phraseProbe(d *StatusDocument) string {
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
			stages = append(stages, stage.name+" "+formatSeconds(*stage.seconds))
		}
	}
	s := "answered"
	if !p.OK {
		s = "failed at " + say(p.Stage) + ": " + say(p.Cause)
		if p.Detail != "" {
			s += " (" + say(p.Detail) + ")"
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

// phraseRuntime says which runtime answers, and where.
func phraseRuntime(d *StatusDocument) string {
	var s string
	if r := d.Runtime; r != nil {
		s = strings.TrimSpace(say(r.Name) + " " + say(r.Version))
		if r.CRIVersion != "" {
			s += " (CRI " + say(r.CRIVersion) + ")"
		}
		s += " at "
	}
	e := d.Endpoint
	if e.Path == "" {
		s += "no socket found"
		if len(e.Searched) > 0 {
			s += "; looked at " + say(strings.Join(e.Searched, ", "))
		}
		return s
	}
	s += say(e.Path)
	if e.Source != "" {
		s += ", from " + say(e.Source)
	}
	return s
}

// phrasePods says what runs on the node.
func phrasePods(d *StatusDocument) string {
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
		s += fmt.Sprintf("; %s for reinspection", formatCount(p.Reinspect, "pod waits", "pods wait"))
	}
	return s
}

// phrasePod names a pod, or says that there is one.
func phrasePod(p *PodDocument) string {
	if p == nil {
		return "a pod (names need authentication)"
	}
	return say(p.Namespace + "/" + p.Name)
}
