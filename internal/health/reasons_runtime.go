package health

import (
	"fmt"
	"strings"
	"time"
)

// runtimeReasons speak of the runtime as a whole: its process and its calls.
var runtimeReasons = []Reason{
	{
		ID: CRIVersionUnsupported, Layer: LayerCalls, Severity: SeverityCritical,
		match: func(w *view) []string {
			e := w.err
			if e == nil {
				return nil
			}
			said := fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message)
			if e.Code == "Unimplemented" {
				return []string{said}
			}
			if strings.Contains(e.Message, "HTTP/1.1 header") { // grpc-go's word for a web server
				return []string{"a web server answers: the other end does not speak gRPC", said}
			}
			// One list that cannot be read may be one entry's fault.
			if s := w.f.Status.LastErr; e.Undecodable && s != nil && s.Undecodable {
				return []string{"no answer is a message of runtime.v1, to Status neither", said}
			}
			// Garbage varies: a peer that has spoken another protocol may just close the next
			// connection.
			p := w.f.Probe
			hangsUp := p.Cause == CauseClosed && !p.ForeignAt.IsZero()
			if p.Cause == CauseUnimplemented || p.Cause == CauseProtocol || hangsUp {
				return []string{"a fresh connection: " + ProbeText(&p)}
			}
			return nil
		},
	},
	{
		ID: RuntimeRestarting, hops: true, Layer: LayerProcess, Severity: SeverityCritical,
		match: func(w *view) []string {
			p := w.f.Evidence.Process
			if p == nil || len(p.Restarts) == 0 {
				return nil
			}
			n := 0
			for _, at := range p.Restarts {
				if w.age(at) <= restartsWithin {
					n++
				}
			}
			last := p.Restarts[len(p.Restarts)-1]
			if n < restartsMany || w.age(last) > restartsOver {
				return nil
			}
			return []string{fmt.Sprintf("started %d times in %s, the last time %s ago", n, Seconds(restartsWithin),
				Seconds(w.age(last)))}
		},
	},
	{
		ID: RuntimeStarting, hops: true, Layer: LayerProcess, Severity: SeverityCritical, event: true,
		match: func(w *view) []string {
			if e := w.err; e != nil && e.NotInitialized {
				return append([]string{fmt.Sprintf("%s failed: %s", e.Operation, e.Message)}, w.youngEvidence()...)
			}
			p := w.f.Evidence.Process
			if p == nil || !p.Alive || w.age(p.Start) > youngFor || !w.lastAnswer.Before(p.Start) {
				return nil
			}
			q := w.f.Evidence.Queue
			cause := w.cause
			switch {
			case (cause == CauseMissing || cause == CauseRefused) && w.justListening():
				return append([]string{"it has just begun to listen"}, w.youngEvidence()...)
			case cause == CauseMissing && w.listensSince(w.f.Probe.FailedSince):
				return nil // the socket's file alone is gone
			case cause == CauseMissing || cause == CauseRefused:
				return append([]string{"it does not listen yet"}, w.youngEvidence()...)
			case w.lists != listsHang || w.age(p.Start) > startsFor || w.inheritor() != nil:
				return nil
			case q != nil && q.Listening && q.Length > 0:
				return append([]string{fmt.Sprintf("it listens and has accepted nothing: accept queue %d of %d", q.Length,
					q.Limit)}, w.youngEvidence()...)
			default:
				return append([]string{"it listens and has answered nothing yet"}, w.youngEvidence()...)
			}
		},
	},
	{
		ID: RuntimeUnresponsive, hops: true, Layer: LayerCalls, Severity: SeverityCritical,
		match: func(w *view) []string {
			if w.link != linkHandshake || w.quotaUnmeasured() {
				return nil
			}
			return append(w.callEvidence(), w.acceptEvidence()...)
		},
	},
	{
		ID: RuntimeListStall, Layer: LayerCalls, Severity: SeverityCritical,
		match: func(w *view) []string {
			if out := w.chainEvidence(RuntimeListStall); out != nil {
				return out
			}
			if w.hungSince.IsZero() || w.link != linkAnswers || w.quotaUnmeasured() {
				return nil
			}
			return w.callEvidence()
		},
	},
	{
		ID: ListResponseTooLarge, Layer: LayerCalls, Severity: SeverityCritical,
		match: func(w *view) []string {
			e := w.refused()
			if e == nil {
				return nil
			}
			whose := "the kubelet's limit"
			if e.ByServer {
				whose = "the runtime's own limit"
			}
			out := []string{fmt.Sprintf("%s is %d bytes, %s is %d", e.Operation, e.Bytes, whose, e.Limit)}
			return out
		},
	},
	{
		ID: RuntimeNotReady, Layer: LayerCalls, Severity: SeverityCritical,
		match: func(w *view) []string {
			s := &w.f.Status
			if s.Answered && !s.RuntimeReady.Good() {
				return []string{w.statusSays(s.RuntimeReady.print("RuntimeReady"))}
			}
			if w.status != statusAlone || w.statusFailsForDescriptors() {
				return nil
			}
			if e := s.LastErr; e != nil && strings.Contains(e.Message, "too many open files") &&
				!w.processSeenSince(w.f.Calls[opStatus].LastFailed) {
				return nil // its descriptors have yet to be counted
			}
			var out []string
			if !s.InFlightSince.IsZero() {
				out = append(out, fmt.Sprintf("status unanswered for %s", Seconds(w.age(s.InFlightSince))))
			}
			if e := s.LastErr; e != nil {
				out = append(out, fmt.Sprintf("status failed: %s: %s", e.Code, e.Message))
			}
			return append(out, fmt.Sprintf("other calls are answered, the last %s ago", Seconds(w.age(w.lastAnswer))))
		},
	},
	{
		ID: NodeStatusStalled, Layer: LayerCalls, Severity: SeverityWarning,
		match: func(w *view) []string {
			since := w.f.Version.HangsSince
			lists := laterOf(w.f.Calls[string(PhaseListContainers)].LastOK, w.f.Relist.LastSeen)
			if !w.unanswered(since, versionReasonAfter) || w.lists == listsHang || w.status != statusOK {
				return nil
			}
			if w.f.Relist.Failures > 0 || !lists.After(since.Add(answerAfterStatus)) {
				return nil
			}
			if !w.listsAnsweredAtOnce() {
				return nil // everything has hung, and the list is only the first to be answered
			}
			return []string{
				fmt.Sprintf("version unanswered for %s", Seconds(w.age(since))),
				fmt.Sprintf("lists are answered, the last %s ago", Seconds(w.age(lists))),
			}
		},
	},
	{
		ID: NetworkNotReady, Layer: LayerPods, Severity: SeverityCritical,
		match: func(w *view) []string {
			if s := &w.f.Status; s.Answered && !s.NetworkReady.Good() {
				return []string{w.statusSays(s.NetworkReady.print("NetworkReady"))}
			}
			return nil
		},
	},
}

// statusSays is a condition of the last Status that was answered, with its age
// where a later one has failed.
func (w *view) statusSays(condition string) string {
	if ok := w.f.Calls[opStatus].LastOK; w.f.Status.LastErr != nil && !ok.IsZero() {
		return fmt.Sprintf("the last Status that was answered, %s ago, says %s", Seconds(w.age(ok)), condition)
	}
	return "Status says " + condition
}

// youngFor is how long after its start a runtime that does not serve yet counts
// as starting: recovering hundreds of pods takes minutes at worst.
const youngFor = 5 * time.Minute

// startsFor is the same for one that accepts and answers nothing: containerd 2.x
// with 80 pods took 9 s on a busy node.
const startsFor = 30 * time.Second

func (w *view) youngEvidence() []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive {
		return nil
	}
	return []string{fmt.Sprintf("pid %d was started %s ago", p.PID, Seconds(w.age(p.Start)))}
}
