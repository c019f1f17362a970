package daemon

import (
	"cmp"
	"slices"
	"time"

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
			RPCTimeout: d.cfg.RPCTimeout, InspectTimeout: d.cfg.InspectTimeout,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      d.runtime.endpoint(),
		Relist:        relistFacts(s),
		Status:        d.status.facts(),
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
	for _, n := range s.Containers {
		f.Containers += n
	}
	if f.Relist.LastSeen.IsZero() && !d.restored.lastSeen.IsZero() {
		f.Relist.LastSeen, f.Relist.LastSeenRestored = d.restored.lastSeen, true
	}
	if v := d.dialer.Version(); v != nil {
		f.Runtime = health.Runtime{Name: v.RuntimeName, Version: v.RuntimeVersion, CRIVersion: v.RuntimeAPIVersion}
	}
	// The model must know what the snapshot knows, or it would lag behind by
	// the time that a result waits to be read.
	switch {
	case s.Phase != relist.Idle:
		d.model.Observe(inFlightRecord(s))
	case s.Last != nil:
		d.model.Observe(endedRecord(s.Last))
	}
	f.Modelled = d.model.At(now)
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
		} else if op, began, _, ok := i.Progress(); ok {
			r.Inspecting = append(r.Inspecting, health.PodInspection{
				UID: i.UID, Namespace: i.Namespace, Name: i.Name, Operation: string(op), Start: began, Failures: i.Failures,
			})
		}
	}
	slices.SortFunc(r.Inspecting, func(a, b health.PodInspection) int { return a.Start.Compare(b.Start) })
	r.Inspecting = first(r.Inspecting)
	if s.Last == nil {
		return r
	}
	l := s.Last
	r.Last = &health.RelistResult{
		Start: l.Start, End: l.End, Err: callError(l.Err), Refused: callError(l.Refused), ListPodSandbox: l.ListSandboxes, ListContainers: l.ListContainers,
		Serial: l.Serial, Changed: l.Changed, Inspected: len(l.Inspections), Failed: l.Failed,
	}
	r.Slowest = bySlowness(l)
	for _, p := range r.Slowest {
		if p.Err != nil {
			r.Failing = append(r.Failing, p)
		}
	}
	r.Failing, r.Slowest = first(r.Failing), first(r.Slowest)
	return r
}

// bySlowness are the inspections of a relist that ended, the slowest first.
func bySlowness(l *relist.Result) (out []health.PodInspection) {
	for _, i := range l.Inspections {
		done := i.Result()
		if done == nil {
			continue
		}
		p := health.PodInspection{
			UID: i.UID, Namespace: i.Namespace, Name: i.Name, Operation: string(done.Operation), Start: done.Start,
			Duration: done.End.Sub(done.Start), Err: callError(done.Err), Failures: i.Failures,
		}
		if done.Err != nil {
			p.Failures++
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b health.PodInspection) int { return cmp.Compare(b.Duration, a.Duration) })
	return out
}

// incidentRelist is a relist that ended, as incidents keep it.
func incidentRelist(l *relist.Result) incident.Relist {
	slowest := bySlowness(l)
	return incident.Relist{
		Start: l.Start, Seconds: l.End.Sub(l.Start).Seconds(),
		ListPodSandbox: l.ListSandboxes.Seconds(), ListContainers: l.ListContainers.Seconds(), Serial: l.Serial.Seconds(),
		Changed: l.Changed, Inspected: len(l.Inspections), Failed: l.Failed,
		Slowest: slices.Clone(slowest[:min(len(slowest), incident.SlowestKept)]), Err: callError(l.Err),
	}
}

func first(p []health.PodInspection) []health.PodInspection {
	return p[:min(len(p), health.MaxPods)]
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

// since returns the end of the first successful relist since one failed; zero
// while one has, and where none ever has.
func (a *answered) since(s *relist.Snapshot) time.Time {
	switch {
	case s.Failures > 0:
		*a = answered{failed: true}
	case a.failed && a.at.IsZero() && s.Last != nil:
		a.at = s.Last.End
	}
	return a.at
}
