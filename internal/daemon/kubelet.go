package daemon

import (
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
func (d *Daemon) follow(f *health.Facts, now time.Time) {
	k := f.Evidence.KubeletProcess
	f.Config.RPCTimeout, f.Config.NodeStatusPeriod, f.Config.From = d.cfg.settings(k)
	if f.Config.RPCTimeout != d.kubelet.timeout {
		d.kubelet.timeout = f.Config.RPCTimeout
		d.runtime.SetRPCTimeout(f.Config.RPCTimeout)
		d.loop.SetRPCTimeout(f.Config.RPCTimeout)
	}
	// Until another one has begun its work the model is that of the last kubelet,
	// also where its process is gone.
	f.KubeletStarted = d.kubelet.started
	if k == nil || now.Sub(k.Started) < kubeletSeenAfter {
		return
	}
	last := orElse(d.kubelet.started, d.started)
	if k.Started.After(last.Add(sameStart)) {
		d.loop.Restart()
		d.kubelet.writer.Restart(k.Started)
	}
	if d.kubelet.started.IsZero() || k.Started.After(last.Add(sameStart)) {
		d.kubelet.started = k.Started
	}
	f.KubeletStarted = d.kubelet.started
}
