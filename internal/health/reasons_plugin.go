package health

import "strings"

// pluginMissing reports whether the runtime is a containerd without its CRI plugin: it lists
// its plugins, or the same socket served runtime.v1 before.
func (s *signals) pluginMissing() bool {
	return s.f.CRIPlugin != nil || s.f.Runtime.Name == "containerd"
}

// pluginUnasked reports whether plegd has only just started, and has yet to ask the server
// for its plugins: that follows the first call for the version.
func (s *signals) pluginUnasked() bool {
	return s.f.Version.Ended.IsZero() && s.f.Relist.LastSeen.IsZero()
}

// pluginNotLoaded matches a containerd that answers and does not serve runtime.v1.
func pluginNotLoaded(s *signals) lines {
	if s.relistErr == nil || s.relistErr.Code != "Unimplemented" || !s.pluginMissing() {
		return nil
	}
	out := lines{s.relistErr.Text()}
	p := s.f.CRIPlugin
	if p == nil {
		return append(out, "containerd served runtime.v1 on this socket before; its list of plugins could not be read")
	}
	if p.Absent {
		return append(out, "containerd has no CRI plugin: its configuration disables it")
	}
	if p.Error == "" {
		return append(out, "containerd reports no error of its CRI plugin")
	}
	return append(out, "containerd's CRI plugin: "+p.Error)
}

// pluginCauses are the steps for an error of the CRI plugin, by a part of its text
// (containerd 1.6 and 2.4: pkg/cri, internal/cri). The first that is part of it counts.
var pluginCauses = []struct{ text, next string }{
	{text: "snapshotter", next: "Start the snapshotter that containerd's configuration names, or correct the name; then restart containerd."},
	{text: "too many open files", next: "Raise fs.inotify.max_user_instances (`sysctl fs.inotify`), then restart containerd."},
	{text: "fsnotify", next: "Raise fs.inotify.max_user_instances (`sysctl fs.inotify`), then restart containerd."},
	{text: "default_runtime_name", next: "Add the default runtime to containerd's configuration, or name another; then restart containerd."},
	{text: "no such file or directory", next: "Make the path that the error names, then restart containerd."},
}

// pluginNext is the step for the error that containerd reports.
func (s *signals) pluginNext() string {
	p := s.f.CRIPlugin
	if p == nil {
		return ""
	}
	if p.Absent {
		return "Remove \"cri\" from disabled_plugins in containerd's config.toml, then restart containerd: pods keep running."
	}
	for _, c := range pluginCauses {
		if strings.Contains(p.Error, c.text) {
			return c.next
		}
	}
	return ""
}
