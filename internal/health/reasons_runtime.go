package health

import (
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

const (
	// How long the kubelet must have failed beside a good runtime, and nobody listened.
	kubeletFails = 10 * time.Second
	kubeletGone  = kubelet.GoneAfter
	// networkStart is how long a new node may take until its network plugin is ready.
	networkStart = 10 * time.Minute
	// kubeletOld is the age of the kubelet's own last seen beside a runtime that answers: above the
	// 300 s between two relists of a kubelet that uses events (KEP-3386, 1.26 to 1.36).
	kubeletOld = 330 * time.Second
	// loopLate is how much longer than it may take a relist or a period must take for the loop to count as stalled.
	loopLate = 10 * time.Second
)

func unsupported(w *view) lines {
	e, s, p := w.err, w.f.Status.LastErr, &w.f.Probe
	if e == nil {
		return nil
	}
	// Garbage varies: a peer that has spoken another protocol may just close the next connection.
	hangsUp := p.Cause == facts.CauseClosed && !p.ForeignAt.IsZero()
	switch said := e.Text(); {
	case e.Code == "Unimplemented":
		if w.pluginMissing() || w.pluginUnasked() {
			return nil
		}
		return lines{said}
	case strings.Contains(e.Message, "HTTP/1.1 header"): // grpc-go's word for a web server
		return lines{"a web server answers: the other end does not speak gRPC", said}
	case e.Undecodable && s != nil && s.Undecodable: // one list that cannot be read may be one entry's fault
		return lines{"no answer is a message of runtime.v1, to Status neither", said}
	case p.Cause == facts.CauseUnimplemented || p.Cause == facts.CauseProtocol || hangsUp:
		return line("a fresh connection: %s", ProbeText(p))
	}
	return nil
}

func unresponsive(w *view) lines {
	if w.link != linkHandshake || w.quotaUnmeasured() {
		return nil
	}
	return append(w.callEvidence(), w.acceptEvidence()...)
}

func listStall(w *view) lines {
	if out := w.chainEvidence(RuntimeListStall); out != nil {
		return out
	}
	if w.hungSince.IsZero() || w.link != linkAnswers || w.quotaUnmeasured() {
		return nil
	}
	return w.callEvidence()
}

func tooLarge(w *view) lines {
	e, whose := w.refused(), "the kubelet's limit"
	if e == nil {
		return nil
	}
	if e.ByServer {
		whose = "the runtime's own limit"
	}
	return line("%s is %d bytes, %s is %d", e.Operation, e.Bytes, whose, e.Limit)
}

func notReady(w *view) (out lines) {
	s, e := &w.f.Status, w.f.Status.LastErr
	switch {
	case s.Answered && !s.RuntimeReady.Good():
		return w.statusSays(s.RuntimeReady.KubeletText("RuntimeReady"))
	case w.status != statusAlone || w.statusFailsForDescriptors():
		return nil
	case e != nil && strings.Contains(e.Message, "too many open files") &&
		!w.processSeenSince(w.f.Calls[opStatus].LastFailed):
		return nil // its descriptors have yet to be counted
	}
	out.when(!s.InFlightSince.IsZero(), "status unanswered for %s", w.ago(s.InFlightSince))
	if e != nil {
		out.add("status failed: %s: %s", e.Code, e.Message)
	}
	out.add("other calls are answered, the last %s ago", w.ago(w.lastAnswer))
	return out
}

func networkNotReady(w *view) lines {
	if s := &w.f.Status; s.Answered && !s.NetworkReady.Good() {
		return w.statusSays(s.NetworkReady.KubeletText("NetworkReady"))
	}
	return nil
}

// networkLost reports whether the pod network has been ready before, or has had the time that a new node needs:
// its network plugin is a pod that is pulled first.
func (w *view) networkLost() bool {
	earlier := w.previous.ActiveReason(NetworkNotReady)
	return !w.f.Status.LastGood.IsZero() || earlier != nil && w.age(earlier.Since) >= networkStart
}

// statusSays is a condition of the last Status that was answered, with its age where a later one has failed.
func (w *view) statusSays(condition string) lines {
	if ok := w.f.Calls[opStatus].LastOK; w.f.Status.LastErr != nil && !ok.IsZero() {
		return line("the last Status that was answered, %s ago, says %s", w.ago(ok), condition)
	}
	return line("Status says %s", condition)
}

func nodeStatusStalled(w *view) (out lines) {
	since := w.f.Version.HangsSince
	lists := facts.Later(w.f.Calls[string(facts.PhaseListContainers)].LastOK, w.f.Relist.LastSeen)
	switch {
	case !w.unanswered(since, versionReasonAfter) || w.lists == listsHang || w.status != statusOK:
		return nil
	case w.f.Relist.Failures > 0 || !lists.After(since.Add(answerAfterStatus)):
		return nil
	case !w.listsAnsweredAtOnce():
		return nil // everything has hung, and the list is only the first to be answered
	}
	out.add("version unanswered for %s", w.ago(since))
	out.add("lists are answered, the last %s ago", w.ago(lists))
	return out
}

func kubeletStalled(w *view) (out lines) {
	k := w.f.Evidence.Kubelet
	if k == nil || !w.runtimeGood() {
		return nil
	}
	listens := k.Seen && !k.Refused
	if !listens && !w.kubeletRuns() {
		return nil
	}
	out.when(!k.OK && w.unanswered(k.FailedSince, kubeletFails), "healthz has failed for %s: %s", w.ago(k.FailedSince),
		k.Detail)
	out.when(w.unanswered(k.LastSeen, kubeletOld), "its own last seen is %s old", w.ago(k.LastSeen))
	out.when(out != nil, "the runtime answered plegd %s ago", w.ago(w.lastAnswer))
	return out
}

func kubeletDown(w *view) (out lines) {
	k := w.f.Evidence.Kubelet
	if k == nil || !k.Seen || !k.Refused || w.kubeletRuns() || !w.unanswered(k.FailedSince, kubeletGone) {
		return nil
	}
	out.add("nobody has listened at its healthz for %s", w.ago(k.FailedSince))
	if p := w.f.Evidence.KubeletProcess; p != nil {
		out.add("pid %d was started %s ago", p.PID, w.ago(p.Started))
	}
	return out
}

// kubeletRuns reports whether the kubelet's process has run for longer than a start takes: if
// nothing listens, it hangs before that.
func (w *view) kubeletRuns() bool {
	p := w.f.Evidence.KubeletProcess
	return p != nil && w.age(p.Started) >= kubeletGone
}

// runtimeGood reports whether the runtime answers all calls of plegd, and has done so for a
// while: the kubelet's own check fails minutes into a runtime's fault, and recovers after it.
func (w *view) runtimeGood() bool {
	r, s, status := &w.f.Relist, &w.f.Status, w.f.Calls[opStatus]
	lately := func(t time.Time) bool { return !t.IsZero() && w.age(t) < kubeletFails }
	slow := status.LastOKDuration >= statusHangAfter && lately(status.LastOK)
	switch {
	case r.Failures > 0 || w.lists == listsHang || r.Last == nil || lately(r.AnsweredSince):
		return false
	case w.inspecting() >= kubeletFails || w.status != statusOK || slow || lately(status.LastFailed):
		return false
	}
	return s.RuntimeReady.Good() && !s.LastGood.IsZero() && w.age(s.LastGood) <= kubelet.StatusLate
}

func loopStalled(w *view) lines {
	r, c := &w.f.Relist, &w.f.Config
	switch in := r.InFlight; {
	case in != nil && in.Phase != facts.PhaseInspect && w.age(in.PhaseStart) > c.RPCTimeout+loopLate:
		return line("%s has been under way for %s, and may take %s", in.Phase, w.ago(in.PhaseStart), facts.Seconds(c.RPCTimeout))
	case in == nil && r.Last != nil && w.age(r.Last.End) > c.RelistPeriod+loopLate:
		return line("no relist has begun for %s", w.ago(r.Last.End))
	}
	return nil
}

// unknown is the evidence of a fault that no critical reason accounts for. A warning may have
// stood for days; a fault of the kubelet, a pod or the network does not make lists fail.
func unknown(w *view, named findings) lines {
	if !w.firstAttemptMade() || w.again {
		return nil
	}
	unexplained := named.critical == 0 || named.critical > LayerCalls
	hangs := w.lists == listsHang && w.age(w.hungSince) >= unknownAfter
	relistsFail := hangs || w.relistsFailFor() >= unknownAfter
	rulesFail := !w.starting && !w.kubelet.NodeReady
	if relistsFail && unexplained || rulesFail && named.critical == 0 && !named.network {
		return w.callEvidence()
	}
	return nil
}

// relistsFailFor returns for how long relists have failed, 0 while they do not.
func (w *view) relistsFailFor() time.Duration {
	r := &w.f.Relist
	if r.Failures == 0 || r.Last == nil {
		return 0
	}
	return w.age(r.Last.Start) + time.Duration(r.Failures-1)*w.f.Config.RelistLateAfter()/2
}

func plegdStarting(w *view, named findings) lines {
	early := !w.firstAttemptMade() && !w.kubelet.NodeReady
	if named.problem || !w.starting && !early {
		return nil
	}
	started := w.ago(w.f.Started)
	if w.f.Endpoint.Searching {
		return line("plegd started %s ago and is looking for the runtime's socket", started)
	}
	return line("plegd started %s ago; no relist and Status have both succeeded yet", started)
}
