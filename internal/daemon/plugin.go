package daemon

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// pluginEvery is the time between two questions for containerd's plugins.
const pluginEvery = 10 * time.Second

// askPlugin asks containerd why its CRI plugin is not loaded, where a call was answered with
// Unimplemented. err is the error of the last call for the version.
func (d *Daemon) askPlugin(ctx context.Context, err *facts.CallError) {
	if err == nil || err.Code != cri.CodeUnimplemented {
		d.plugin.Store(nil)
		return
	}
	last := d.plugin.Load()
	if last != nil && time.Since(last.At) < pluginEvery {
		return
	}
	plugins, failed := d.client.Plugins(ctx)
	if failed != nil {
		d.plugin.Store(nil) // it is not containerd
		return
	}
	found := cri.PluginState(plugins)
	found.At = time.Now()
	d.plugin.Store(found)
	if last == nil {
		d.news.Send()
	}
}
