package health

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
)

// TestPluginNext: the step follows from the error that containerd reports.
func TestPluginNext(t *testing.T) {
	for name, tt := range map[string]struct {
		plugin *facts.CRIPlugin
		want   string // a part of the step, "" for the page's
	}{
		"unknown":     {plugin: nil, want: ""},
		"snapshotter": {plugin: &facts.CRIPlugin{Error: `failed to find snapshotter "nydus"`}, want: "Start the snapshotter"},
		"inotify":     {plugin: &facts.CRIPlugin{Error: "failed to create fsnotify watcher: too many open files"}, want: "max_user_instances"},
		"runtime":     {plugin: &facts.CRIPlugin{Error: "invalid plugin config: default_runtime_name"}, want: "default runtime"},
		"disabled":    {plugin: &facts.CRIPlugin{Absent: true}, want: "disabled_plugins"},
		"other":       {plugin: &facts.CRIPlugin{Error: "something else"}, want: ""},
	} {
		w := &signals{f: &facts.Facts{CRIPlugin: tt.plugin}}
		got := w.pluginNext()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
