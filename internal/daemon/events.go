package daemon

import (
	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

// logEvents logs each change of the event stream once.
func (j *judge) logEvents(f *health.Facts) {
	e := f.Events
	if e == nil {
		return
	}
	if e.Phase == events.Waiting && !j.eventsBegun {
		return
	}
	j.eventsBegun = true
	was, changed := j.eventsLogged.Set(eventStream{phase: e.Phase, inUse: e.InUse})
	if !changed {
		return
	}
	level := zap.InfoLevel
	var text string
	switch e.Phase {
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
	j.log.Log(level, text, fields...)
}

// eventStream is the state of the event stream as it is logged.
type eventStream struct {
	phase string
	inUse bool
}
