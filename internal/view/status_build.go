package view

import (
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// StuckAfter is how long an inspection is under way before it counts as stuck:
// by then it holds up the next relist.
const StuckAfter = time.Second

// BuildStatus makes the status document of a snapshot. Unless names is true it
// holds no name of a pod or container: neither as a field nor inside a text.
// PlegdVersion and Node are left for the caller to fill in.
func BuildStatus(s Snapshot, names bool) StatusDocument {
	b := builder{now: s.Now, names: names, redact: newRedactor(&s.Facts, names)}
	v := s.Verdict
	d := StatusDocument{
		SchemaVersion: StatusSchemaVersion,
		Now:           s.Now.UTC().Round(0),
		Started:       s.Facts.Started.UTC().Round(0),

		State:           string(v.State),
		Since:           timeOrNil(b.wall(v.Since)),
		Reason:          v.Reason,
		RunnerUp:        v.RunnerUp,
		Reasons:         b.reasons(v.Active),
		KubeletMessage:  v.KubeletMessage,
		PLEGHealthy:     v.PLEGHealthy,
		SyncLoopAllowed: v.SyncLoopAllowed,
		Kubelet:         modelDocument(&s),

		LastSeen:            timeOrNil(b.wall(v.LastSeen)),
		LastSeenAge:         secondsIf(!v.LastSeen.IsZero(), v.LastSeenAge),
		ModelledLastSeen:    timeOrNil(b.wall(v.ModelledLastSeen)),
		ModelledLastSeenAge: secondsIf(!v.ModelledLastSeen.IsZero(), v.ModelledAge),
		Threshold:           v.Threshold.Seconds(),
		RelistPeriod:        s.Facts.Config.RelistPeriod.Seconds(),
		NotReadyIn:          DurationOrNil(v.NotReadyIn),
		NotReadyInLatest:    DurationOrNil(v.NotReadyInLatest),
		Next:                b.redact.text(v.Next),
		Steps:               health.Steps(&s.Facts, &v),

		Runtime: runtimeDocument(s.Facts.Runtime),
		Endpoint: EndpointDocument{
			Path:     s.Facts.Endpoint.Path,
			Source:   s.Facts.Endpoint.Source,
			Searched: s.Facts.Endpoint.Searched,
		},
		Relist:      b.relist(s.Facts.Relist),
		Operations:  b.operations(s.Facts.Calls),
		StatusCheck: b.statusCheck(s.Facts.Status),
		Probe:       b.probe(s.Facts.Probe),
		Evidence:    b.evidence(&s.Facts.Evidence),
		Events:      b.events(s.Facts.Events),
		Pods:        b.pods(&s),
	}
	b.chain(&d, &v)
	return d
}

// chain fills in the chain of waiting, without names where none may be shown.
func (b *builder) chain(d *StatusDocument, v *health.Verdict) {
	d.Symptom, d.Chain, d.Culprit = v.Symptom, slices.Clone(v.Chain), v.Culprit
	if b.names {
		d.ChainEnd = v.ChainEnd
		return
	}
	for i := range d.Chain {
		d.Chain[i] = d.Chain[i].WithoutNames()
	}
	if d.Culprit != nil {
		culprit := d.Culprit.WithoutNames()
		d.Culprit = &culprit
	}
}

// modelDocument is the modelled kubelet and the settings that it has.
func modelDocument(s *Snapshot) ModelDocument {
	v, c := &s.Verdict, &s.Facts.Config
	d := ModelDocument{
		RulesOK: v.RulesOK, RulesFailIn: DurationOrNil(v.RulesFailIn), NodeReady: v.NodeReady,
		ReadyIn: DurationOrNil(v.ReadyIn), ReadyInLatest: DurationOrNil(v.ReadyInLatest),
		Started: timeOrNil(s.Facts.KubeletStarted), RPCTimeout: c.RPCTimeout.Seconds(), NodeStatusPeriod: c.NodeStatusPeriod.Seconds(),
		From: map[string]string{},
	}
	maps.Copy(d.From, c.From)
	if k := s.Facts.Evidence.KubeletProcess; k != nil {
		d.EventedPLEG, d.Problem = k.EventedPLEG, k.Problem
		for _, setting := range []string{cri.SettingEndpoint, cri.SettingEventedPLEG} {
			if from, ok := k.From[setting]; ok {
				d.From[setting] = from
			}
		}
	}
	return d
}

// builder holds what the parts of a document share.
type builder struct {
	now    time.Time
	names  bool
	redact redactor
}

func (b builder) reasons(active []health.Active) []ReasonDocument {
	out := make([]ReasonDocument, 0, len(active))
	for _, a := range active {
		evidence := make([]string, 0, len(a.Evidence))
		for _, e := range a.Evidence {
			evidence = append(evidence, b.redact.text(e))
		}
		out = append(out, ReasonDocument{
			ID: a.ID, Severity: string(a.Severity), Since: b.wall(a.Since).UTC().Round(0), Evidence: evidence,
		})
	}
	return out
}

func (b builder) relist(r health.Relist) RelistDocument {
	d := RelistDocument{Attempts: r.Attempts, Failures: r.Failures, TypicalLists: median(r.Lists)}
	if f := r.InFlight; f != nil {
		d.InFlight = &InFlightDocument{
			Phase:        string(f.Phase),
			Seconds:      b.age(f.Start),
			PhaseSeconds: b.age(f.PhaseStart),
			Pods:         f.Pods,
			Inspected:    f.Inspected,
		}
	}
	if l := r.Last; l != nil {
		d.Last = &LastRelist{
			Start:          l.Start.UTC().Round(0),
			Seconds:        l.End.Sub(l.Start).Seconds(),
			Serial:         l.Serial.Seconds(),
			ListPodSandbox: l.ListPodSandbox.Seconds(),
			ListContainers: l.ListContainers.Seconds(),
			Changed:        l.Changed,
			Inspected:      l.Inspected,
			Failed:         l.Failed,
			Error:          b.callError(l.Err),
		}
	}
	return d
}

func (b builder) operations(calls map[string]health.Call) map[string]OperationDocument {
	out := make(map[string]OperationDocument, len(calls))
	for name, c := range calls {
		d := OperationDocument{
			LastOK:          timeOrNil(b.wall(c.LastOK)),
			LastOKSeconds:   secondsIf(!c.LastOK.IsZero(), c.LastOKDuration),
			LastFailed:      timeOrNil(b.wall(c.LastFailed)),
			LastError:       b.callError(c.LastErr),
			InFlightSeconds: b.ageOrNil(c.InFlightSince),
		}
		if Answered(c) {
			d.Bytes = &c.Bytes
		}
		out[name] = d
	}
	return out
}

func (b builder) statusCheck(s health.Status) StatusCheckDocument {
	return StatusCheckDocument{
		LastGood:        timeOrNil(b.wall(s.LastGood)),
		LastGoodAge:     b.ageOrNil(s.LastGood),
		InFlightSeconds: b.ageOrNil(s.InFlightSince),
		LastError:       b.callError(s.LastErr),
		Conditions: ConditionsDocument{
			RuntimeReady: conditionDocument(s.RuntimeReady),
			NetworkReady: conditionDocument(s.NetworkReady),
		},
	}
}

func (b builder) pods(s *Snapshot) PodsDocument {
	r := s.Facts.Relist
	d := PodsDocument{
		Reinspect: r.Reinspect,
		Slowest:   b.inspections(r.Slowest),
		Failing:   b.inspections(r.Failing),
	}
	stuck := make([]health.PodInspection, 0, len(r.Inspecting))
	for _, p := range r.Inspecting {
		if s.Now.Sub(p.Start) >= StuckAfter {
			stuck = append(stuck, p)
		}
	}
	d.Stuck = b.inspections(stuck)
	if s.Counted {
		running := s.RunningPods
		d.Running = &running
		d.Containers = make(map[string]int, len(s.Containers))
		for state, n := range s.Containers {
			d.Containers[cri.State(state).String()] = n
		}
	}
	return d
}

func (b builder) inspections(pods []health.PodInspection) []PodInspectionDocument {
	out := make([]PodInspectionDocument, 0, len(pods))
	for _, p := range pods {
		d := PodInspectionDocument{
			Operation: p.Operation,
			Start:     p.Start.UTC().Round(0),
			Seconds:   p.Duration.Seconds(),
			Failures:  p.Failures,
			Error:     b.callError(p.Err),
		}
		if p.Duration == 0 {
			d.Seconds = b.age(p.Start)
		}
		if b.names {
			d.Pod = &PodDocument{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		}
		out = append(out, d)
	}
	return out
}

// callError leaves out the message of a failed inspection where names may not
// be shown: the runtime likes to put an id or a name into it.
func (b builder) callError(e *health.CallError) *ErrorDocument {
	if e == nil {
		return nil
	}
	d := &ErrorDocument{Operation: e.Operation, Code: e.Code, Message: e.Message, Bytes: e.Bytes, Limit: e.Limit}
	switch cri.Operation(e.Operation) {
	case cri.OpVersion, cri.OpStatus, cri.OpListPodSandbox, cri.OpListContainers, cri.OpContainerEvents:
	default:
		if !b.names {
			d.Message = ""
		}
	}
	return d
}

// wall returns t as the present wall clock has it.
func (b builder) wall(t time.Time) time.Time { return PresentWall(b.now, t) }

// clockStep is the least difference between the wall clock and the monotonic
// clock that is a step: below it is the slewing of NTP.
const clockStep = time.Second

// PresentWall returns t as the wall clock of now has it: as long ago by the wall
// clock as it is by the monotonic clock. They differ after the wall clock was set.
func PresentWall(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	age := now.Sub(t)
	if step := now.Round(0).Sub(t.Round(0)) - age; step.Abs() < clockStep {
		return t
	}
	return now.Round(0).Add(-age)
}

// age returns the seconds since t, never less than 0.
func (b builder) age(t time.Time) float64 { return max(0, b.now.Sub(t)).Seconds() }

func (b builder) ageOrNil(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	age := b.age(t)
	return &age
}

// median returns the median in seconds, nil of nothing.
func median(d []time.Duration) *float64 {
	if len(d) == 0 {
		return nil
	}
	d = slices.Sorted(slices.Values(d))
	return secondsIf(true, d[len(d)/2])
}

func runtimeDocument(r health.Runtime) *RuntimeDocument {
	if r == (health.Runtime{}) {
		return nil
	}
	return &RuntimeDocument{Name: r.Name, Version: r.Version, CRIVersion: r.CRIVersion}
}

func conditionDocument(c *health.Condition) *ConditionDocument {
	if c == nil {
		return nil
	}
	return &ConditionDocument{Status: c.Status, Reason: c.Reason, Message: c.Message}
}

func (b builder) probe(p health.Probe) *ProbeDocument {
	if p.At.IsZero() {
		return nil
	}
	return &ProbeDocument{
		At: b.wall(p.At).UTC().Round(0), OK: p.OK, Stage: string(p.Stage), Cause: string(p.Cause), Detail: p.Detail,
		ConnectSeconds:  secondsIf(p.Connect > 0, p.Connect),
		SettingsSeconds: secondsIf(p.Settings > 0, p.Settings),
		RPCSeconds:      secondsIf(p.RPC > 0, p.RPC),
		Failures:        p.Failures,
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(0)
	return &t
}

func secondsIf(known bool, d time.Duration) *float64 {
	if !known {
		return nil
	}
	s := d.Seconds()
	return &s
}

// DurationOrNil returns d in seconds; nil for nil.
func DurationOrNil(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return secondsIf(true, *d)
}

// Answered tells whether the size of an answer is known: of an empty list it
// is 0, and so it is before the first.
func Answered(c health.Call) bool { return !c.LastOK.IsZero() || c.Bytes > 0 }
