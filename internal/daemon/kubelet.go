package daemon

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/kubelet"
)

// kubeletSeenAfter is how long a kubelet must run until the model begins again
// with it: before that it has made no call.
const kubeletSeenAfter = 2 * time.Second

// sameStart is how far apart two readings of one start time may be.
const sameStart = time.Second

// kubeletModel is the kubelet's node status update, with the settings of the node's
// own kubelet.
type kubeletModel struct {
	writer  kubelet.Model
	started time.Time // of the kubelet's process, zero while none has been seen
	timeout time.Duration
	status  *facts.NodeStatus // the last one
}

// completeFacts adds to the facts what depends on the node's kubelet: it takes over its
// settings, and begins again when it has restarted. Until another one has begun its work the
// model is that of the last kubelet, also where its process is gone. held keeps its last node
// status: plegd was paused.
func (d *Daemon) completeFacts(f *facts.Facts, now time.Time, held bool) {
	k := &d.kubelet
	if f.Relist.LastSeen.IsZero() && !d.restored.lastSeen.IsZero() {
		f.Relist.LastSeen, f.Relist.LastSeenRestored = d.restored.lastSeen, true
		if k.started.Before(d.started) {
			f.Modelled.LastSeen = d.restored.lastSeen
		}
	}
	process := f.Evidence.KubeletProcess
	d.cfg.settings(process, &f.Config)
	if f.Config.RPCTimeout != k.timeout {
		k.timeout = f.Config.RPCTimeout
		d.client.SetRPCTimeout(k.timeout)
	}
	if process != nil && now.Sub(process.Started) >= kubeletSeenAfter {
		again := process.Started.After(cmp.Or(k.started, d.started).Add(sameStart))
		if again {
			d.loop.Restart()
			k.writer.Restart(process.Started)
		}
		if again || k.started.IsZero() {
			k.started = process.Started
		}
	}
	f.KubeletStarted = k.started
	if k.status == nil || !held {
		status := k.writer.At(f, now, health.Observe(f, now))
		k.status = &status
	}
	f.NodeStatus = k.status
}

// settings takes over the kubelet's settings as far as they are known: a flag that the
// user gave wins.
func (c *Config) settings(k *facts.KubeletProcess, to *facts.Config) {
	if k == nil {
		k = &facts.KubeletProcess{}
	}
	to.From = map[string]string{}
	choose := func(value time.Duration, flag, setting string, own time.Duration) time.Duration {
		to.From[setting] = "default"
		switch {
		case c.Given != nil && c.Given(flag):
			to.From[setting] = "--" + flag
		case own > 0:
			to.From[setting] = k.From[setting]
			return max(own, minPeriod)
		}
		return value
	}
	to.RPCTimeout = choose(c.RPCTimeout, "rpc-timeout", facts.SettingRequestTimeout, k.RequestTimeout)
	to.NodeStatusPeriod = choose(c.NodeStatusPeriod, "node-status-period", facts.SettingNodeStatusPeriod,
		k.NodeStatusPeriod)
}
