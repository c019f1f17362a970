package daemon

import (
	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/health"
)

// eventStream is the state of the event stream as it is logged.
type eventStream struct {
	phase string
	inUse bool
}

// logEvents logs each change of the event stream once.
func (j *judge) logEvents(f *health.Facts) {
	e := f.Events
	if e == nil || e.Phase == events.Waiting {
		return
	}
	was, changed := j.eventsLogged.Set(eventStream{phase: e.Phase, inUse: e.InUse})
	if !changed {
		return
	}
	level, text := zap.WarnLevel, "the runtime sends no events; the generic relist loop continues"
	switch {
	case was.inUse && e.FellBack:
		text = "the runtime's event stream failed five times; relying on relists alone until it holds"
	case e.Phase == events.Streaming:
		level, text = zap.InfoLevel, "the runtime's event stream holds"
	case e.Phase == events.Broken:
		text = "the runtime's event stream broke; it is tried again"
	case e.Phase == events.Refused:
		text = "the runtime's events are left alone; the generic relist loop continues"
	}
	j.log.Log(level, text, zap.String("events", e.Mode), zap.Duration("relist_period", f.Config.RelistPeriod),
		zap.Duration("relist_threshold", f.Config.RelistThreshold), zap.String("detail", e.Detail))
}
