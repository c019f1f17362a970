package daemon

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// kubeletSeenAfter is how long a kubelet must run until the model begins again
// with it: before that it has made no call.
const kubeletSeenAfter = 2 * time.Second

// sameStart is how far apart two readings of one start time may be.
const sameStart = time.Second

// kubeletModel is the kubelet's node status update, with the settings of the node's
// own kubelet. It belongs to the judge.
type kubeletModel struct {
	writer  health.NodeWriter
	started time.Time // of the kubelet's process, zero while none has been seen
	timeout time.Duration
	status  *health.NodeStatus // the last one
}

// complete adds to the facts what depends on the node's kubelet. held keeps its last node
// status: plegd was paused.
func (k *kubeletModel) complete(d *parts, f *health.Facts, now time.Time, held bool) {
	if f.Relist.LastSeen.IsZero() && !d.restored.lastSeen.IsZero() {
		f.Relist.LastSeen, f.Relist.LastSeenRestored = d.restored.lastSeen, true
		if k.started.Before(d.started) {
			f.Modelled.LastSeen = d.restored.lastSeen
		}
	}
	k.follow(d, f, now)
	if k.status == nil || !held {
		status := k.writer.At(f, now)
		k.status = &status
	}
	f.NodeStatus = k.status
}

// settings are the kubelet's, as far as known, or plegd's flags: a flag that the
// user gave wins. from says for each where it comes from.
func (c *Config) settings(k *health.KubeletProcess) (timeout, period time.Duration, from map[string]string) {
	timeout, period = c.RPCTimeout, c.NodeStatusPeriod
	from = map[string]string{}
	choose := func(value *time.Duration, flag, setting string, own time.Duration) {
		switch {
		case c.given(flag):
			from[setting] = "--" + flag
		case k != nil && own > 0:
			*value, from[setting] = own, k.From[setting]
		default:
			from[setting] = "default"
		}
	}
	var ownTimeout, ownPeriod time.Duration
	if k != nil {
		ownTimeout, ownPeriod = k.RequestTimeout, k.NodeStatusPeriod
	}
	choose(&timeout, "rpc-timeout", health.SettingRequestTimeout, ownTimeout)
	choose(&period, "node-status-period", health.SettingNodeStatusPeriod, ownPeriod)
	return max(timeout, minPeriod), max(period, minPeriod), from
}

// follow takes over the settings of the node's kubelet, and begins again when
// that has restarted.
func (k *kubeletModel) follow(d *parts, f *health.Facts, now time.Time) {
	process := f.Evidence.KubeletProcess
	f.Config.RPCTimeout, f.Config.NodeStatusPeriod, f.Config.From = d.cfg.settings(process)
	if f.Config.RPCTimeout != k.timeout {
		k.timeout = f.Config.RPCTimeout
		d.runtime.SetRPCTimeout(f.Config.RPCTimeout)
		d.loop.SetRPCTimeout(f.Config.RPCTimeout)
	}
	// Until another one has begun its work the model is that of the last kubelet,
	// also where its process is gone.
	f.KubeletStarted = k.started
	if process == nil || now.Sub(process.Started) < kubeletSeenAfter {
		return
	}
	last := cmp.Or(k.started, d.started)
	if process.Started.After(last.Add(sameStart)) {
		d.loop.Restart()
		k.writer.Restart(process.Started)
	}
	if k.started.IsZero() || process.Started.After(last.Add(sameStart)) {
		k.started = process.Started
	}
	f.KubeletStarted = k.started
}
