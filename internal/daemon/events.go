package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

// Version asks the held connection.
func (r *runtime) Version(ctx context.Context) (cri.Version, error) {
	c, err := r.client(cri.OpVersion)
	if err != nil {
		return cri.Version{}, err
	}
	return c.Version(ctx)
}

// ContainerEvents subscribes on the held connection.
func (r *runtime) ContainerEvents(ctx context.Context, lease time.Duration, each func(*cri.ContainerEvent)) (cri.StreamEnd, error) {
	c, err := r.client(cri.OpContainerEvents)
	if err != nil {
		return cri.StreamFailed, err
	}
	return c.ContainerEvents(ctx, lease, each)
}

// PodLists asks the held connection.
func (r *runtime) PodLists(ctx context.Context, uid string) ([]*cri.Sandbox, []*cri.Container, error) {
	c, err := r.client(cri.OpListPodSandbox)
	if err != nil {
		return nil, nil, err
	}
	return c.PodLists(ctx, uid)
}

// newEvents returns the subscription, nil where plegd was told of none.
func (d *Daemon) newEvents() *events.Subscriber {
	if d.cfg.Events == relist.Off {
		return nil
	}
	return events.New(events.Options{
		Source: d.runtime, Loop: d.loop, Lease: d.cfg.EventsLease, AllowUnsafe: d.cfg.EventsAllowUnsafe,
		Rely: d.cfg.Events == relist.Evented,
	})
}

// eventFacts is what is known of the event stream, nil where there is none.
func (d *Daemon) eventFacts(s *relist.Snapshot) *health.Events {
	if d.events == nil {
		return nil
	}
	st, t := d.events.State(), s.Trust
	e := &health.Events{
		Mode: string(d.cfg.Events), Phase: string(st.Phase), Since: st.Since, Detail: st.Detail, InUse: s.Evented, FellBack: st.FellBack,
		Failures: st.Failures, LastFailed: st.LastFailed, LastErr: callError(st.LastErr), LastEvent: st.LastEvent,
		Opened: st.Opened, Errors: st.Errors, Lapses: st.Lapses, Received: map[string]uint64{}, Duplicates: st.Duplicates, Backlog: st.Backlog,
		Missed: t.Missed, MissedSince: t.MissedSince, LastMissed: t.LastMissed,
		OutOfOrder: t.OutOfOrder, NoStatus: t.NoStatus, Known: t.Known, Gone: t.Gone, Dropped: t.Dropped,
	}
	for kind, n := range st.Events {
		e.Received[cri.EventType(kind).String()] = n
	}
	e.Waiting, e.Capacity = d.loop.Waiting()
	return e
}

// lookAgain is the time between two relists that are asked for because of a
// suspicion.
const lookAgain = 5 * time.Second

// suspect asks for a relist where relists are far apart and something else says
// that the runtime does not answer: a reason wants to know what the lists do.
func (j *judge) suspect(f *health.Facts, now time.Time) {
	if f.Events == nil || !f.Events.InUse || f.Relist.InFlight != nil || now.Sub(j.suspected) < lookAgain {
		return
	}
	status := f.Status.LastErr != nil || !f.Status.InFlightSince.IsZero() && now.Sub(f.Status.InFlightSince) >= time.Second
	if status || !f.Probe.FailedSince.IsZero() || f.Relist.Failures > 0 {
		j.suspected = now
		j.d.loop.CatchUp()
	}
}

// tellEvents says each change of the event stream once.
func (j *judge) tellEvents(f *health.Facts) {
	e := f.Events
	if e == nil {
		return
	}
	if e.Phase == string(events.Waiting) && !j.eventsBegun {
		return
	}
	j.eventsBegun = true
	was, changed := j.events.Set(eventStream{phase: e.Phase, inUse: e.InUse})
	if !changed {
		return
	}
	level := zap.InfoLevel
	var text string
	switch events.Phase(e.Phase) {
	case events.Streaming:
		text = "the runtime's event stream holds"
	case events.Broken:
		level, text = zap.WarnLevel, "the runtime's event stream broke; it is tried again"
	case events.Refused:
		level, text = zap.WarnLevel, "the runtime's events are left alone; the generic relist loop continues"
	case events.Unsupported, events.EndsAtOnce:
		level, text = zap.WarnLevel, "the runtime sends no events; the generic relist loop continues"
	default:
		text = "waiting for the runtime's event stream"
	}
	if e.Mode == string(relist.Evented) && was.inUse && !e.InUse && e.FellBack {
		level, text = zap.WarnLevel, "the runtime's event stream failed five times; relying on relists alone until it holds"
	}
	fields := []zap.Field{
		zap.String("events", e.Mode), zap.Duration("relist_period", f.Config.RelistPeriod),
		zap.Duration("relist_threshold", f.Config.RelistThreshold),
	}
	if e.Detail != "" {
		fields = append(fields, zap.String("detail", e.Detail))
	}
	j.d.log.Log(level, text, fields...)
}

// eventStream is the state of the event stream as it is logged.
type eventStream struct {
	phase string
	inUse bool
}
