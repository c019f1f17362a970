package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/relist"
)

// facts gathers the facts of a moment. It waits for none of the parts. timeout is the kubelet's limit
// of one call.
func (d *Daemon) facts(t time.Time, timeout time.Duration) facts.Facts {
	s := d.loop.Snapshot()
	f := facts.Facts{
		Config: facts.Config{
			RelistPeriod: s.Period, RelistThreshold: d.cfg.RelistThreshold, ProbeTimeout: d.cfg.ProbeTimeout,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      *d.endpoint.Load(),
		Status:        *d.status.Load(),
		Version:       *d.version.Load(),
		Runtime:       *d.runtime.Load(),
		CRIPlugin:     d.plugin.Load(),
		Calls:         map[string]facts.Call{},
		Arriving:      d.client.Arriving(),
		Probe:         d.dialer.Last(),
		Pods:          s.Pods,
		Evidence:      d.sources.Facts(),
	}
	if s.Evented {
		f.Config.RelistThreshold = relist.EventedThreshold
		f.Config.GenericPeriod = d.cfg.RelistPeriod
	}
	if d.events != nil {
		f.Events = d.events.State()
	}
	if d.path() != "" {
		for _, op := range cri.Operations() {
			f.Calls[op] = d.client.History(op)
		}
	}
	if last := d.client.LastDial(); last != nil {
		f.Dial.At = last.At
		f.Dial.Cause = last.Cause
		f.Dial.Detail = last.Detail
		f.Dial.PeerPID, f.Dial.Up = d.client.Peer()
	}
	f.Relist, f.Modelled = s.Facts(t, timeout, d.loop.Throttled)
	for name, part := range d.shown {
		if state, ok := part.Source(); ok {
			f.Evidence.Sources[name] = state
		}
	}
	f.Evidence.Children = d.withPods(f.Evidence.Children)
	f.Evidence.Chain = d.chain.Load()
	f.Evidence.Findings = d.findings()
	f.Evidence.Second = d.second.Load()
	return f
}

// sightTimeout limits a look at a process: the judge waits for it.
const sightTimeout = 100 * time.Millisecond

// sighting returns the present state of a process.
func (d *Daemon) sighting(pid int) incident.Sighting {
	p, err := d.sights.Do(context.Background(), sightTimeout, func(context.Context) (proc.Process, error) {
		return proc.ReadStat(d.cfg.ProcFS, pid)
	})
	switch {
	case proc.Gone(err):
		return incident.Sighting{Known: true}
	case err != nil:
		return incident.Sighting{}
	}
	return incident.Sighting{Known: true, Alive: !p.Dead(), Comm: p.Comm, Stopped: proc.ThreadState(p.State) == "T"}
}

// withPods returns the children with the pods that the stuck ones serve.
func (d *Daemon) withPods(c *facts.Children) *facts.Children {
	if c == nil || len(c.Stuck) == 0 {
		return c
	}
	out := *c
	out.Stuck = slices.Clone(c.Stuck)
	for i := range out.Stuck {
		out.Stuck[i].PodUID = d.listed(out.Stuck[i].Sandbox).PodUID
	}
	return &out
}
