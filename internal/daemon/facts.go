package daemon

import (
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

// facts gathers what the parts of plegd know into plain values. It waits for
// none of them.
func (d *Daemon) facts(now time.Time) health.Facts {
	s := d.loop.Snapshot()
	f := health.Facts{
		Config: health.Config{
			RelistPeriod: s.Period, RelistThreshold: d.cfg.RelistThreshold,
			RPCTimeout: d.cfg.RPCTimeout, ProbeTimeout: d.cfg.ProbeTimeout, NodeStatusPeriod: d.cfg.NodeStatusPeriod,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      d.runtime.endpoint(),
		Status:        d.status.facts(),
		Version:       d.version.facts(),
		Calls:         d.runtime.calls(),
		Arriving:      d.runtime.Arriving(),
		Dial:          d.runtime.dial(),
		Probe:         d.dialer.Last(),
	}
	if s.Evented {
		f.Config.RelistThreshold, f.Config.GenericPeriod = relist.EventedThreshold, d.cfg.RelistPeriod
	}
	f.Events = d.eventFacts()
	f.Relist, f.Modelled = s.Facts(now, d.kubelet.timeout)
	f.Evidence = d.sources.facts(&f.Probe)
	f.Evidence.Children = d.runtime.withPods(f.Evidence.Children)
	f.Evidence.Chain = d.waiting.chain.Load()
	f.Pods = s.Pods()
	if f.Relist.LastSeen.IsZero() && !d.restored.lastSeen.IsZero() {
		f.Relist.LastSeen, f.Relist.LastSeenRestored = d.restored.lastSeen, true
		if d.kubelet.started.Before(d.started) {
			f.Modelled.LastSeen = d.restored.lastSeen
		}
	}
	if v := d.dialer.Version(); v != nil {
		f.Runtime = health.Runtime{Name: v.RuntimeName, Version: v.RuntimeVersion, CRIVersion: v.RuntimeAPIVersion}
	}
	d.follow(&f, now)
	f.Woke = d.judge.paused.woke
	if d.nodeStatus == nil || !d.judge.paused.held {
		status := d.kubelet.writer.At(&f, now)
		d.nodeStatus = &status
	}
	f.NodeStatus = d.nodeStatus
	return f
}
