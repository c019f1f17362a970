package health

import (
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

func unsupported(s *signals) lines {
	e := s.relistErr
	status := s.f.Status.LastErr
	p := &s.f.Probe
	if e == nil {
		return nil
	}
	// Garbage varies: a peer that has spoken another protocol may just close the next connection.
	hangsUp := p.Cause == facts.CauseClosed && !p.ForeignAt.IsZero()
	text := e.Text()
	switch {
	case e.Code == "Unimplemented":
		if s.pluginUnasked() {
			return nil
		}
		return lines{text}
	case strings.Contains(e.Message, "HTTP/1.1 header"): // grpc-go's word for a web server
		return lines{"a web server answers: the other end does not speak gRPC", text}
	case e.Undecodable && status != nil && status.Undecodable: // one list that cannot be read may be one entry's fault
		return lines{"no answer is a message of runtime.v1, to Status neither", text}
	case p.Cause == facts.CauseUnimplemented || p.Cause == facts.CauseProtocol || hangsUp:
		return line("a fresh connection: %s", ProbeText(p))
	}
	return nil
}

func unresponsive(s *signals) lines {
	if s.link != linkHandshake || s.quotaUnmeasured {
		return nil
	}
	return append(s.callEvidence(), s.acceptEvidence()...)
}

func listStall(s *signals) lines {
	if out := s.chainEvidence(RuntimeListStall); out != nil {
		return out
	}
	if s.hungSince.IsZero() || s.link != linkAnswers || s.quotaUnmeasured {
		return nil
	}
	return s.callEvidence()
}

func tooLarge(s *signals) lines {
	e := s.tooLarge
	if e == nil {
		return nil
	}
	owner := "the kubelet's limit"
	if e.ByServer {
		owner = "the runtime's own limit"
	}
	return line("%s is %d bytes, %s is %d", e.Operation, e.Bytes, owner, e.Limit)
}

func notReady(s *signals) (out lines) {
	status := &s.f.Status
	e := status.LastErr
	if status.Answered && !status.RuntimeReady.Good() {
		return s.statusSays(status.RuntimeReady.KubeletText("RuntimeReady"))
	}
	if failing := kubelet.StatusFailsSince(s.f); s.status == statusOK && !failing.IsZero() {
		return line("each Status of the kubelet's own has failed for %s, by its metrics; plegd's are answered", s.ago(failing))
	}
	if s.status != statusAlone || s.statusLacksDescriptor {
		return nil
	}
	descriptors := e != nil && strings.Contains(e.Message, "too many open files")
	if descriptors && !s.processSeenSince(s.f.Calls[opStatus].LastFailed) {
		return nil // its descriptors have yet to be counted
	}
	out.addIf(!status.InFlightSince.IsZero(), "status unanswered for %s", s.ago(status.InFlightSince))
	if e != nil {
		out.add("status failed: %s: %s", e.Code, e.Message)
	}
	out.add("other calls are answered, the last %s ago", s.ago(s.lastAnswer))
	return out
}

func networkNotReady(s *signals) lines {
	status := &s.f.Status
	if !status.Answered || status.NetworkReady.Good() {
		return nil
	}
	return s.statusSays(status.NetworkReady.KubeletText("NetworkReady"))
}

// networkLost reports whether the pod network has been ready before, or has had the time that a new node needs:
// its network plugin is a pod that is pulled first.
func (s *signals) networkLost() bool {
	earlier := s.previous.ActiveReason(NetworkNotReady)
	return !s.f.Status.LastGood.IsZero() || earlier != nil && s.age(earlier.Since) >= networkStart
}

// statusSays is a condition of the last Status that was answered, with its age where a later one has failed.
func (s *signals) statusSays(condition string) lines {
	if ok := s.f.Calls[opStatus].LastOK; s.f.Status.LastErr != nil && !ok.IsZero() {
		return line("the last Status that was answered, %s ago, says %s", s.ago(ok), condition)
	}
	return line("Status says %s", condition)
}

func nodeStatusStalled(s *signals) (out lines) {
	start := s.f.Version.HangsSince
	lists := facts.Later(s.f.Calls[string(facts.PhaseListContainers)].LastOK, s.f.Relist.LastSeen)
	listsAnswered := s.f.Relist.Failures == 0 && s.lists != listsHang && lists.After(start.Add(answerAfterStatus))
	// If everything has hung, the list is only the first to be answered.
	if !s.unanswered(start, versionReasonAfter) || !listsAnswered || s.status != statusOK || !s.listsPrompt {
		return nil
	}
	out.add("version unanswered for %s", s.ago(start))
	out.add("lists are answered, the last %s ago", s.ago(lists))
	return out
}

func kubeletStalled(s *signals) (out lines) {
	k := s.f.Evidence.Kubelet
	if k == nil || !s.runtimeGood() {
		return nil
	}
	listens := k.Seen && !k.Refused
	if !listens && !s.kubeletRuns() {
		return nil
	}
	out.addIf(!k.OK && s.unanswered(k.FailedSince, kubeletFails), "healthz has failed for %s: %s", s.ago(k.FailedSince),
		k.Detail)
	out.addIf(s.unanswered(k.LastSeen, kubeletOld), "its own last seen is %s old", s.ago(k.LastSeen))
	out.addIf(out != nil, "the runtime answered plegd %s ago", s.ago(s.lastAnswer))
	return out
}

func kubeletDown(s *signals) (out lines) {
	k := s.f.Evidence.Kubelet
	if k == nil || !k.Seen || !k.Refused || s.kubeletRuns() || !s.unanswered(k.FailedSince, kubeletGone) {
		return nil
	}
	out.add("nobody has listened at its healthz for %s", s.ago(k.FailedSince))
	if p := s.f.Evidence.KubeletProcess; p != nil {
		out.add("pid %d was started %s ago", p.PID, s.ago(p.Started))
	}
	return out
}

// kubeletRuns reports whether the kubelet's process has run for longer than a start takes: if
// nothing listens, it hangs before that.
func (s *signals) kubeletRuns() bool {
	p := s.f.Evidence.KubeletProcess
	return p != nil && s.age(p.Started) >= kubeletGone
}

// runtimeGood reports whether the runtime answers all calls of plegd, and has done so for a
// while: the kubelet's own check fails minutes into a runtime's fault, and recovers after it.
func (s *signals) runtimeGood() bool {
	r := &s.f.Relist
	status := &s.f.Status
	call := s.f.Calls[opStatus]
	lately := func(t time.Time) bool { return !t.IsZero() && s.age(t) < kubeletFails }
	listsGood := r.Failures == 0 && s.lists != listsHang && r.Last != nil && !lately(r.AnsweredSince)
	statusSlow := call.LastOKDuration >= statusHangAfter && lately(call.LastOK)
	statusGood := s.status == statusOK && !statusSlow && !lately(call.LastFailed)
	ready := status.RuntimeReady.Good() && !status.LastGood.IsZero() && s.age(status.LastGood) <= kubelet.StatusLate
	return listsGood && statusGood && ready && s.inspecting() < kubeletFails
}

func loopStalled(s *signals) lines {
	r := &s.f.Relist
	config := &s.f.Config
	relist := r.InFlight
	if relist != nil && relist.Phase != facts.PhaseInspect && s.age(relist.PhaseStart) > config.RPCTimeout+loopLate {
		return line("%s has been in flight for %s, and may take %s", relist.Phase, s.ago(relist.PhaseStart),
			facts.Seconds(config.RPCTimeout))
	}
	if relist == nil && r.Last != nil && s.age(r.Last.End) > config.RelistPeriod+loopLate {
		return line("no relist has begun for %s", s.ago(r.Last.End))
	}
	return nil
}

// unknown is the evidence of a fault that no critical reason accounts for. A warning may have
// stood for days; a fault of the kubelet, a pod or the network does not make lists fail.
func unknown(s *signals, named findings) lines {
	if !s.attempted || s.recovering {
		return nil
	}
	unexplained := named.critical == 0 || named.critical > LayerCalls
	hangs := s.lists == listsHang && s.age(s.hungSince) >= unknownAfter
	relistsFail := hangs || s.relistsFailFor() >= unknownAfter
	rulesFail := !s.starting && !s.kubelet.NodeReady
	if relistsFail && unexplained || rulesFail && named.critical == 0 && !named.reported {
		return s.callEvidence()
	}
	return nil
}

// relistsFailFor returns for how long relists have failed, 0 while they do not.
func (s *signals) relistsFailFor() time.Duration {
	r := &s.f.Relist
	if r.Failures == 0 || r.Last == nil {
		return 0
	}
	return s.age(r.Last.Start) + time.Duration(r.Failures-1)*s.f.Config.RelistLateAfter()/2
}

func plegdStarting(s *signals, named findings) lines {
	early := !s.attempted && !s.kubelet.NodeReady
	if named.problem || !s.starting && !early {
		return nil
	}
	started := s.ago(s.f.Started)
	if s.f.Endpoint.Searching {
		return line("plegd started %s ago and is looking for the runtime's socket", started)
	}
	return line("plegd started %s ago; no relist and Status have both succeeded yet", started)
}
