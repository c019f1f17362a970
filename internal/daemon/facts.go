package daemon

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

// facts gathers the facts. It waits for none of the parts. timeout is the kubelet's limit
// of one call.
func (d *Daemon) facts(now time.Time, timeout time.Duration) health.Facts {
	s := d.loop.Snapshot()
	f := health.Facts{
		Config: health.Config{
			RelistPeriod: s.Period, RelistThreshold: d.cfg.RelistThreshold, ProbeTimeout: d.cfg.ProbeTimeout,
		},
		Started:       d.started,
		UnobservedGap: d.restored.gap,
		Endpoint:      *d.endpoint.Load(),
		Status:        *d.status.Load(),
		Version:       *d.version.Load(),
		Calls:         map[string]health.Call{},
		Arriving:      d.client.Arriving(),
		Probe:         d.dialer.Last(),
		Pods:          s.Pods,
		Evidence:      d.sources.Facts(),
	}
	if s.Evented {
		f.Config.RelistThreshold, f.Config.GenericPeriod = relist.EventedThreshold, d.cfg.RelistPeriod
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
		f.Dial.Cause, f.Dial.Detail = evidence.ConnectCause(last.Err, d.path())
		f.Dial.PeerPID, f.Dial.Up = d.client.Peer()
	}
	f.Relist, f.Modelled = s.Facts(now, timeout)
	for name, part := range d.shown {
		if state, ok := part.Source(); ok {
			f.Evidence.Sources[name] = state
		}
	}
	f.Evidence.Children = d.withPods(f.Evidence.Children)
	f.Evidence.Chain = d.chain.Load()
	if v := d.dialer.Version(); v != nil {
		f.Runtime = health.Runtime{Name: v.RuntimeName, Version: v.RuntimeVersion, CRIVersion: v.RuntimeAPIVersion}
	}
	return f
}

// withPods returns the children with the pods that the stuck ones serve.
func (d *Daemon) withPods(c *health.Children) *health.Children {
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

// newestPeer returns the process that listened at the path when the newest
// connection was made, the held one or a fresh one, and when that was.
func (d *Daemon) newestPeer() (pid int, at time.Time) {
	pid, at = d.dialer.Peer()
	if held := d.client.LastDial(); held != nil && held.Err == nil && held.At.After(at) {
		return held.PeerPID, held.At
	}
	return pid, at
}

// heldPeer returns the process at the other end of the held connection; where
// none could be made, the one that listened when the newest connection was.
func (d *Daemon) heldPeer() int {
	if held := d.client.LastDial(); held != nil && held.Err == nil {
		return held.PeerPID
	}
	pid, _ := d.dialer.Peer()
	return pid
}
