package daemon

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/kubelet"
	"github.com/plegd/plegd/internal/relist"
)

// kubeletSeenAfter is how long a kubelet must run until the model begins again
// with it: before that it has made no call.
const kubeletSeenAfter = 2 * time.Second

// sameStart is how far apart two readings of one start time may be.
const sameStart = time.Second

// kubeletModel is the kubelet's node status update, with the settings of the node's
// own kubelet.
type kubeletModel struct {
	model   kubelet.Model
	started time.Time // of the kubelet's process, zero while none has been seen
	ticks   uint64    // the same since boot, 0 if unknown
	timeout time.Duration
	status  *facts.NodeStatus // the last one
	// estimated is the start of the kubelet's last relist by an estimate.
	estimated time.Time
}

// completeFacts adds to the facts what depends on the node's kubelet: it takes over its
// settings, and begins again when it has restarted. Until another one has begun its work the
// model is that of the last kubelet, also where its process is gone. last is the last verdict. held
// keeps its node status, as plegd was paused; then there is nothing to judge.
func (d *Daemon) completeFacts(f *facts.Facts, t time.Time, last *facts.Verdict, held bool) (observed *health.Observed) {
	k := &d.kubelet
	d.addRestored(f)
	process := f.Evidence.KubeletProcess
	d.cfg.settings(&f.Evidence, &f.Config)
	if f.Config.RPCTimeout != k.timeout {
		k.timeout = f.Config.RPCTimeout
		d.client.SetRPCTimeout(k.timeout)
	}
	if process != nil && t.Sub(process.Started) >= kubeletSeenAfter {
		d.followKubelet(process)
	}
	f.KubeletStarted = k.started
	if k.status == nil || !held {
		observed = health.Observe(f, t, last)
		status, estimated := k.model.Observe(f, t, observed.Observations)
		k.status = &status
		k.estimated = estimated
	}
	f.NodeStatus = k.status
	f.Modelled.Estimated = k.estimated
	return observed
}

// addRestored adds the last relist before a restart of plegd, as long as there is no other.
func (d *Daemon) addRestored(f *facts.Facts) {
	if !f.Relist.LastSeen.IsZero() || d.restored.lastSeen.IsZero() {
		return
	}
	f.Relist.LastSeen = d.restored.lastSeen
	f.Relist.LastSeenRestored = true
	if d.kubelet.started.Before(d.started) {
		f.Modelled.LastSeen = d.restored.lastSeen
	}
}

// followKubelet notes the start of the kubelet's process, and begins again with another one.
func (d *Daemon) followKubelet(process *facts.KubeletProcess) {
	k := &d.kubelet
	if process.StartTicks > 0 && process.StartTicks == k.ticks {
		return
	}
	restarted := process.Started.After(cmp.Or(k.started, d.started).Add(sameStart))
	if restarted {
		d.loop.Restart()
		k.model.Restart(process.Started)
	}
	if restarted || k.started.IsZero() {
		k.started = process.Started
		k.ticks = process.StartTicks
	}
}

// settings takes over the kubelet's settings as far as they are known: a flag that the
// user gave wins.
func (c *Config) settings(e *facts.Evidence, config *facts.Config) {
	k := cmp.Or(e.KubeletProcess, &facts.KubeletProcess{})
	config.From = map[string]string{}
	assumed := "default"
	if k.Problem != "" {
		assumed = "default: not all of the kubelet's files could be read"
	}
	choose := func(value time.Duration, flag, setting string, kubelets time.Duration) time.Duration {
		config.From[setting] = assumed
		switch {
		case c.Given != nil && c.Given(flag):
			config.From[setting] = "--" + flag
		case kubelets > 0:
			config.From[setting] = k.From[setting]
			return max(kubelets, minPeriod)
		}
		return value
	}
	config.RPCTimeout = choose(c.RPCTimeout, "rpc-timeout", facts.SettingRequestTimeout, k.RequestTimeout)
	evented, known := relistsByEvents(k, e)
	if config.GenericPeriod == 0 && evented {
		if !known {
			config.EarliestThreshold = config.RelistThreshold
		}
		config.RelistThreshold = relist.EventedThreshold
		config.KubeletRelistPeriod = relist.EventedPeriod
	}
	config.NodeStatusPeriod = choose(c.NodeStatusPeriod, "node-status-period", facts.SettingNodeStatusPeriod,
		k.NodeStatusPeriod)
}

// relistsByEvents reports whether the kubelet may rely on the runtime's events, and whether it is known: EventedPLEG
// lengthens its relist period up to 1.36, until its event stream has failed five times (pkg/kubelet/pleg/evented.go). A
// restart of the runtime makes it fail, and where the runtime is back at once not so often.
func relistsByEvents(k *facts.KubeletProcess, e *facts.Evidence) (evented, known bool) {
	lengthened, versionKnown := e.Kubelet.RelistsLess()
	if !k.EventedPLEG || versionKnown && !lengthened {
		return false, true
	}
	runtime := e.Process
	streams := runtime == nil || runtime.Alive && !runtime.Start.After(k.Started.Add(sameStart))
	return true, versionKnown && streams
}
