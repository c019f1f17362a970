package daemon

import (
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

// facts gathers the facts. It waits for none of the parts. timeout is the kubelet's limit
// of one call.
func (d *parts) facts(now time.Time, timeout time.Duration) health.Facts {
	s := d.loop.Snapshot()
	f := health.Facts{
		Config: health.Config{
			RelistPeriod: s.Period, RelistThreshold: d.cfg.RelistThreshold, ProbeTimeout: d.cfg.ProbeTimeout,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      *d.runtime.endpoint.Load(),
		Status:        *d.status.state.Load(),
		Version:       d.version.facts(),
		Calls:         d.runtime.calls(),
		Arriving:      d.runtime.Arriving(),
		Dial:          d.runtime.dial(),
		Probe:         d.dialer.Last(),
		Pods:          s.Pods(),
		Evidence:      d.sources.facts(),
	}
	if s.Evented {
		f.Config.RelistThreshold, f.Config.GenericPeriod = relist.EventedThreshold, d.cfg.RelistPeriod
	}
	if d.events != nil {
		f.Events = d.events.State()
	}
	f.Relist, f.Modelled = s.Facts(now, timeout)
	f.Evidence.Children = d.runtime.withPods(f.Evidence.Children)
	f.Evidence.Chain = d.chain.Load()
	if v := d.dialer.Version(); v != nil {
		f.Runtime = health.Runtime{Name: v.RuntimeName, Version: v.RuntimeVersion, CRIVersion: v.RuntimeAPIVersion}
	}
	return f
}
