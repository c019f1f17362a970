package health

import "time"

// signal is a condition of the node that several reasons need. Each has a name,
// is computed once in a judgement, and is in the verdict with the time since
// which it holds.
type signal int

// The signals, in the order in which a verdict lists them.
const (
	sigFirstAttemptMade signal = iota
	sigSettled
	sigHeldConnectionDown
	sigHeldConnectionAnswers
	sigNothingAnswers
	sigAnsweringAgain
	sigListsAnsweredAtOnce
	sigRelistTrouble
	sigRelistSuffers
	sigListsSuffer
	sigListsSlowLately
	sigListsSlow
	sigStatusTrouble
	sigAnsweredWhileStatusFails
	sigStatusFailsForDescriptors
	sigStatusRuleCounts
	sigRelistEndsInTime
	sigJustAnswered
	sigDescriptorsExhausted
	sigDescriptorsFreed
	sigAcceptNeedsDescriptor
	sigNotAccepting
	sigAcceptQueueDrains
	sigListensUnlinked
	sigJustListening
	sigListenerChanged
	sigWaitsForCPU
	sigQuotaTakesTime
	sigFreezerHoldsThreads
	sigCallsGood
	sigRuntimeGood
	sigStorageUnwritable
	numSignals
)

// SignalState is a signal that holds.
type SignalState struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
}

// callsGood is the name of sigCallsGood, of which the time since which it holds counts.
const callsGood = "calls_good"

// signalRow is one signal: its name, what it means, and how it is found.
type signalRow struct {
	name  string
	means string
	holds func(*view) bool
}

// signals has a row for each signal.
var signals = [numSignals]signalRow{
	sigFirstAttemptMade:          {"first_attempt_made", "the first search for an endpoint and the first relist have ended, or that relist hangs", (*view).firstAttemptMade},
	sigSettled:                   {"settled", "plegd has seen for itself how relist and Status are answered", (*view).settled},
	sigHeldConnectionDown:        {"held_connection_down", "the last relist failed without an answer, and nothing has been answered since", (*view).heldConnectionDown},
	sigHeldConnectionAnswers:     {"held_connection_answers", "calls on the held connection are answered, and have been since the runtime stopped accepting", (*view).heldConnectionAnswers},
	sigNothingAnswers:            {"nothing_answers", "no connection can be made, or a list and a Version call beside it are unanswered", (*view).nothingAnswers},
	sigAnsweringAgain:            {"answering_again", "everything hung, another call has just been answered, and the list has as much time again", (*view).answeringAgain},
	sigListsAnsweredAtOnce:       {"lists_answered_at_once", "the lists of the last two relists and of the one under way were answered at once", (*view).listsAnsweredAtOnce},
	sigRelistTrouble:             {"relist_trouble", "a relist has failed, or has been under way for more than two periods", (*view).relistTrouble},
	sigRelistSuffers:             {"relist_suffers", "relists fail, hang or are slow", (*view).relistSuffers},
	sigListsSuffer:               {"lists_suffer", "lists hang, fail for want of an answer, or are slow", (*view).listsSuffer},
	sigListsSlowLately:           {"lists_slow_lately", "one of the recent relists' lists was slow", (*view).listsSlowLately},
	sigListsSlow:                 {"lists_slow", "the lists of the last two relists were slow", (*view).listsSlow},
	sigStatusTrouble:             {"status_trouble", "Status fails or hangs", (*view).statusTrouble},
	sigAnsweredWhileStatusFails:  {"answered_while_status_fails", "other calls are answered while Status fails or hangs", (*view).answeredWhileStatusFails},
	sigStatusFailsForDescriptors: {"status_fails_for_descriptors", "Status fails for want of a file descriptor", (*view).statusFailsForDescriptors},
	sigStatusRuleCounts:          {"status_rule_counts", "the 30 s of the kubelet's Status rule are running out", (*view).statusRuleCounts},
	sigRelistEndsInTime:          {"relist_ends_in_time", "the modelled relist is known to end before the threshold", (*view).relistEndsInTime},
	sigJustAnswered:              {"just_answered", "the runtime answers again, after a relist that hung or failed", (*view).justAnswered},
	sigDescriptorsExhausted:      {"descriptors_exhausted", "the runtime has no free file descriptor", (*view).descriptorsExhausted},
	sigDescriptorsFreed:          {"descriptors_freed", "the runtime had no free file descriptor a moment ago", (*view).descriptorsFreed},
	sigAcceptNeedsDescriptor:     {"accept_needs_descriptor", "a connection waits for a file descriptor to be accepted", (*view).acceptNeedsDescriptor},
	sigNotAccepting:              {"not_accepting", "the runtime does not accept connections", (*view).notAccepting},
	sigAcceptQueueDrains:         {"accept_queue_drains", "the accept queue is being emptied", (*view).acceptQueueDrains},
	sigListensUnlinked:           {"listens_unlinked", "the runtime listens on a socket whose file is gone", (*view).listensUnlinked},
	sigJustListening:             {"just_listening", "no fresh connect has begun since the listener was first seen", (*view).justListening},
	sigListenerChanged:           {"listener_changed", "another socket or process is at the path than the last fresh connection met", (*view).listenerChanged},
	sigWaitsForCPU:               {"waits_for_cpu", "the runtime waits for a CPU most of the time that it could run", (*view).waitsForCPU},
	sigQuotaTakesTime:            {"quota_takes_time", "the runtime's own CPU quota takes time from it, or has just done so", (*view).quotaTakesTime},
	sigFreezerHoldsThreads:       {"freezer_holds_threads", "a freezer holds threads of the runtime", (*view).freezerHoldsThreads},
	sigCallsGood:                 {callsGood, "every call to the runtime is answered", (*view).callsGood},
	sigRuntimeGood:               {"runtime_good", "every call to the runtime has been answered for a while", (*view).runtimeGood},
	sigStorageUnwritable:         {"storage_unwritable", "a file system that the runtime writes to is full, out of inodes or read-only", (*view).storageUnwritable},
}

// signalValues are the signals of one judgement that have been asked for.
type signalValues struct {
	rows  *[numSignals]signalRow
	known [numSignals]bool
	holds [numSignals]bool
}

// on reports whether a signal holds. It is computed once in a judgement.
func (w *view) on(s signal) bool {
	v := &w.signals
	if !v.known[s] {
		v.holds[s] = v.rows[s].holds(w)
		v.known[s] = true
	}
	return v.holds[s]
}

// states returns the signals that hold, each with the time since which it has in
// the verdicts before.
func (w *view) states() (out []SignalState) {
	for s := range numSignals {
		if !w.on(s) {
			continue
		}
		state := SignalState{Name: signals[s].name, Since: w.now}
		if before := w.previous.signal(state.Name); before != nil {
			state.Since = before.Since
		}
		out = append(out, state)
	}
	return out
}

// signal returns a signal that holds, nil where it does not.
func (v *Verdict) signal(name string) *SignalState {
	if v == nil {
		return nil
	}
	for i := range v.Signals {
		if v.Signals[i].Name == name {
			return &v.Signals[i]
		}
	}
	return nil
}
