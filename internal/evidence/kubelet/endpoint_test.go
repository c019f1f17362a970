package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/must"
)

func TestParseEndpoint(t *testing.T) {
	long := "/" + strings.Repeat("a", maxSocketPath-1)
	for _, tt := range []struct {
		endpoint, want, err string
	}{
		{"/run/containerd/containerd.sock", "/run/containerd/containerd.sock", ""},
		{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock", ""},
		{"unix:////run//crio/../crio/crio.sock", "/run/crio/crio.sock", ""},
		{"/run/crio/", "/run/crio", ""},
		{"/a path/with spaces", "/a path/with spaces", ""},
		{long, long, ""},
		{"unix://" + long, long, ""},

		{long + "b", "", "want a path of at most 107 bytes"},
		{"", "", "want an absolute path"},
		{"unix://", "", "want an absolute path"},
		{"run/containerd.sock", "", "want an absolute path"},
		{"unix://run/containerd.sock", "", "want an absolute path"},
		{"./containerd.sock", "", "want an absolute path"},
		{"tcp://127.0.0.1:1234", "", "on this node"},
		{"npipe:////./pipe/containerd", "", "on this node"},
		{"http:///run/x.sock", "", "on this node"},
		{"vsock://2:1024", "", "on this node"},
		{"unix:/run/x.sock", "", "want an absolute path"},
		{"UNIX:///run/x.sock", "", "on this node"},
	} {
		got, err := ParseEndpoint(tt.endpoint)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%q: %q, %v; want %q", tt.endpoint, got, err, tt.want)
		case tt.err != "" && (err == nil || got != ""):
			t.Errorf("%q: %q, %v; want an error", tt.endpoint, got, err)
		case tt.err != "" && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "\n") ||
			!strings.HasPrefix(err.Error(), `"`+tt.endpoint+`"`)):
			t.Errorf("%q: %q; want the value and %q in one line", tt.endpoint, err, tt.err)
		}
	}
}

// FuzzParseEndpoint: each result is a path that ParseEndpoint accepts.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"", "/run/x", "unix:///run/x", "unix://x", "tcp://x", "/../..", "unix:////"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(path, "/") || len(path) > maxSocketPath {
			t.Fatalf("%q became %q", s, path)
		}
		if got, err := ParseEndpoint("unix://" + path); err != nil || got != path {
			t.Fatalf("%q became %q, and that with unix:// before it %q, %v", s, path, got, err)
		}
	})
}

// FuzzSettings reads any file in the place of the kubelet's configuration, and
// any arguments as the kubelet's.
func FuzzSettings(f *testing.F) {
	f.Add([]byte("containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"))
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte("--container-runtime-endpoint\x00/run/x.sock\x00--container-runtime-endpoint="))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		must.Do(t, os.WriteFile(filepath.Join(root, "config.yaml"), b, 0o600))
		args := append([]string{"kubelet", "--config=/config.yaml"}, strings.Split(string(b), "\x00")...)
		r := settingsReader{root: root}
		s := r.read(t.Context(), 9, "kubelet", args)
		if (s.Endpoint != "") != (s.From[facts.SettingEndpoint] != "") || s.NodeStatusPeriod < 0 {
			t.Errorf("%q: %+v", b, s)
		}
	})
}
