package daemon

import (
	"iter"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/relist"
)

// facts gathers what the parts of plegd know into plain values. It waits for
// none of them.
func (d *Daemon) facts(now time.Time) health.Facts {
	s := d.loop.Snapshot()
	f := health.Facts{
		Config: health.Config{
			RelistPeriod: s.Period, RelistThreshold: d.cfg.RelistThreshold,
			RPCTimeout: d.cfg.RPCTimeout, InspectTimeout: d.cfg.InspectTimeout, NodeStatusPeriod: d.cfg.NodeStatusPeriod,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      d.runtime.endpoint(),
		Relist:        relistFacts(s),
		Status:        d.status.facts(),
		Version:       d.version.facts(),
		Calls:         d.runtime.calls(),
		Arriving:      d.runtime.arriving(),
		Dial:          d.runtime.dial(),
		Probe:         d.dialer.Last(),
		Discarded:     s.Discarded,
		LastDiscard:   s.LastDiscard,
	}
	if s.Evented {
		f.Config.RelistThreshold, f.Config.GenericPeriod = relist.EventedThreshold, d.cfg.RelistPeriod
	}
	f.Events = d.eventFacts(s)
	f.Relist.AnsweredSince = d.answered.since(s)
	f.Evidence = d.sources.facts(&f.Probe)
	f.Evidence.Chain = d.waiting.chain.Load()
	if s.Counted {
		f.Pods = &health.Pods{Running: s.RunningPods, Containers: map[string]int{}}
		for state, n := range s.Containers {
			f.Pods.Containers[cri.State(state).String()] = n
		}
	}
	if f.Relist.LastSeen.IsZero() && !d.restored.lastSeen.IsZero() {
		f.Relist.LastSeen, f.Relist.LastSeenRestored = d.restored.lastSeen, true
	}
	if v := d.dialer.Version(); v != nil {
		f.Runtime = health.Runtime{Name: v.RuntimeName, Version: v.RuntimeVersion, CRIVersion: v.RuntimeAPIVersion}
	}
	d.follow(&f, now)
	// The model must know what the snapshot knows, or it would lag behind by
	// the time that a result waits to be read.
	switch {
	case s.Phase != relist.Idle:
		d.kubelet.relists.Observe(inFlightRecord(s))
	case s.Last != nil && s.Last.End.After(d.kubelet.started):
		d.kubelet.relists.Observe(endedRecord(s.Last))
	}
	d.trends.Follow(&f, now)
	f.Trends = d.trends.At(now)
	f.Modelled = d.kubelet.relists.At(now)
	f = d.judge.paused.look(now, &f)
	if d.nodeStatus == nil || !d.judge.paused.waking() {
		status := d.kubelet.writer.At(&f, now, d.judge.last)
		d.nodeStatus = &status
	}
	f.NodeStatus = d.nodeStatus
	return f
}

func relistFacts(s *relist.Snapshot) health.Relist {
	r := health.Relist{
		Attempts: s.Attempts, LastSeen: s.LastSeen, Failures: s.Failures, Lists: s.Lists, Reinspect: s.Reinspect,
	}
	if s.Phase != relist.Idle {
		r.InFlight = &health.InFlight{Start: s.Start, Phase: phaseOf(s.Phase), PhaseStart: s.PhaseStart, Refused: callError(s.Refused), Pods: len(s.Inspections)}
	}
	for _, i := range s.Inspections {
		if i.Result() != nil {
			r.InFlight.Inspected++
		} else if op, began, call, ok := i.Progress(); ok {
			r.Inspecting = append(r.Inspecting, health.PodInspection{
				UID: i.UID, Namespace: i.Namespace, Name: i.Name, Operation: string(op), Start: began, CallStart: call, Failures: i.Failures,
			})
		}
	}
	slices.SortFunc(r.Inspecting, func(a, b health.PodInspection) int { return a.Start.Compare(b.Start) })
	r.Inspecting = slices.Clone(r.Inspecting[:min(len(r.Inspecting), health.MaxPods)]) // facts are kept for long
	if s.Last == nil {
		return r
	}
	l := s.Last
	last := relistResult(l)
	r.Last = &last
	r.Slowest, r.Failing = slowest(l, health.MaxPods, whatever), slowest(l, health.MaxPods, failed)
	return r
}

// ended is an inspection that has ended.
type ended struct {
	*relist.Inspection
	*relist.InspectionResult
	took time.Duration
}

// slowest are the n slowest of those inspections of a relist that which holds
// for, the slowest first.
func slowest(l *relist.Result, n int, which func(*relist.InspectionResult) bool) (out []health.PodInspection) {
	all := func(yield func(ended) bool) {
		for _, i := range l.Inspections {
			if done := i.Result(); done != nil && which(done) && !yield(ended{i, done, done.End.Sub(done.Start)}) {
				return
			}
		}
	}
	for _, e := range longest(all, n) {
		p := health.PodInspection{
			UID: e.UID, Namespace: e.Namespace, Name: e.Name, Operation: string(e.Operation), Start: e.Start,
			Duration: e.took, Err: callError(e.Err), Failures: e.Failures,
		}
		if e.Err != nil {
			p.Failures++
		}
		out = append(out, p)
	}
	return out
}

// longest are the n of all that took longest, the longest first and equals in
// their order. A burst has thousands, and each judgement and each scrape comes
// here: nothing is made of the others.
func longest(all iter.Seq[ended], n int) []ended {
	most := make([]ended, 0, n+1)
	for e := range all {
		at := len(most)
		for at > 0 && most[at-1].took < e.took {
			at--
		}
		if at < n {
			most = slices.Insert(most, at, e)
			most = most[:min(len(most), n)]
		}
	}
	return most
}

func whatever(*relist.InspectionResult) bool { return true }

func failed(done *relist.InspectionResult) bool { return done.Err != nil }

// relistResult is a relist that ended.
func relistResult(l *relist.Result) health.RelistResult {
	return health.RelistResult{
		Start: l.Start, End: l.End, Err: callError(l.Err), Refused: callError(l.Refused), ListPodSandbox: l.ListSandboxes, ListContainers: l.ListContainers,
		Serial: l.Serial, Changed: l.Changed, Inspected: len(l.Inspections), Failed: l.Failed,
	}
}

// incidentRelist is a relist that ended, as incidents keep it.
func incidentRelist(l *relist.Result) health.RelistResult {
	r := relistResult(l)
	r.Slowest = slowest(l, incident.SlowestKept, whatever)
	return r
}

func phaseOf(p relist.Phase) health.Phase {
	switch p {
	case relist.ListingSandboxes:
		return health.PhaseListPodSandbox
	case relist.ListingContainers:
		return health.PhaseListContainers
	default:
		return health.PhaseInspect
	}
}

// inFlightRecord is the relist under way, for the modelled kubelet. Lists that
// plegd had to stream are lists that the kubelet has not.
func inFlightRecord(s *relist.Snapshot) health.RelistRecord {
	r := health.RelistRecord{Seq: s.Attempts, Start: s.Start, Early: s.Early}
	if s.Phase == relist.Inspecting {
		r.Listed, r.OK = s.PhaseStart, s.Refused == nil
		r.Inspections = inspectionRecords(s.Inspections)
	}
	return r
}

// endedRecord is a relist that ended, for the modelled kubelet.
func endedRecord(l *relist.Result) health.RelistRecord {
	return health.RelistRecord{
		Seq: l.Seq, Start: l.Start, Listed: l.Listed, OK: l.Err == nil && l.Refused == nil,
		Inspections: inspectionRecords(l.Inspections, l.Hinted), Again: inspectionRecords(l.Again), Complete: true, Early: l.Early, Period: l.Period,
	}
}

func inspectionRecords(groups ...[]*relist.Inspection) []health.InspectionRecord {
	inspections := slices.Concat(groups...)
	out := make([]health.InspectionRecord, 0, len(inspections))
	for _, i := range inspections {
		r := health.InspectionRecord{UID: i.UID}
		if done := i.Result(); done != nil {
			r.Done, r.End, r.Spent = true, done.End, done.End.Sub(done.Start)
			r.Cut, r.CutCall = done.Cut, done.LastCall
		}
		out = append(out, r)
	}
	return out
}

// answered remembers since when relists have succeeded.
type answered struct {
	failed bool
	at     time.Time
}

// since returns the end of the first successful relist since one failed, or of
// the last one that hung and was answered; zero while one has failed, and where
// none ever has or did. When the next relist has ended too, the kubelet's may
// have a moment to go.
func (a *answered) since(s *relist.Snapshot) time.Time {
	switch {
	case s.Failures > 0:
		*a = answered{failed: true}
	case s.Last != nil && s.Last.Err == nil && s.Last.End.Sub(s.Last.Start) >= health.HangAfter:
		*a = answered{at: s.Last.End}
	case a.failed && a.at.IsZero() && s.Last != nil:
		a.at = s.Last.End
	}
	return a.at
}
