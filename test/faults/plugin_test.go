//go:build e2e

package faults

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

// pluginFaults are those of a containerd that was restarted and did not load its CRI plugin.
// plegd is started before, so that it has seen the plugin serve.
var pluginFaults = []fault{
	{
		name: "restarted with a snapshotter that is not there", on: onContainerd, restarts: true,
		want: health.CRIPluginNotLoaded, goal: 6 * time.Second, evidence: constant("nydus"), next: constant("Start the snapshotter"),
		onTheWay: restartedContainerd, onTheWayBack: restartedContainerd, back: 20 * time.Second,
		make: restartedWith(firstPlugin, missingSnapshotter+firstPlugin),
	},
	{
		name: "restarted with the CRI plugin disabled", on: onContainerd, restarts: true,
		want: health.CRIPluginNotLoaded, goal: 6 * time.Second, evidence: constant("has no CRI plugin"), next: constant("disabled_plugins"),
		onTheWay: restartedContainerd, onTheWayBack: restartedContainerd, back: 20 * time.Second,
		make: restartedWith("version = ", "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\nversion = "),
	},
}

var restartedContainerd = []string{
	health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting, health.Unknown, health.RuntimeRestarting,
}

const (
	firstPlugin = `[plugins."io.containerd.internal.v1.opt"]`
	// missingSnapshotter names one in the sections of containerd 1.6 and of 2.x, which ignore
	// each other's.
	missingSnapshotter = `[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "nydus"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "nydus"
`
)

func constant(text string) func(*bench) string { return func(*bench) string { return text } }

// restartedWith restarts containerd with a changed configuration.
func restartedWith(old, changed string) func(*bench) func() {
	return func(b *bench) func() {
		b.Terminate()
		b.ReplaceInConfig(old, changed)
		b.Launch()
		return func() {
			b.Terminate()
			b.ReplaceInConfig(changed, old)
			b.Start()
		}
	}
}
