package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// maxSocketPath is what a unix socket address holds besides its terminating
// zero (unix(7), sun_path).
const maxSocketPath = 107

const crictlConfig = "/etc/crictl.yaml"

// UsualSockets are the places where runtimes listen, in the order in which they
// are tried: containerd, CRI-O, cri-dockerd, k3s and RKE2, k0s, microk8s.
func UsualSockets() []string {
	return []string{
		"/run/containerd/containerd.sock",
		"/run/crio/crio.sock",
		"/run/cri-dockerd.sock",
		k3sEndpoint,
		"/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock",
	}
}

// ParseEndpoint returns the socket's path of an endpoint: an absolute path or a
// unix:// URL. The error names the value and the allowed ones.
func ParseEndpoint(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case !isURL && strings.Contains(endpoint, "://"):
		return "", fmt.Errorf("%q: want an absolute path or a unix:// URL: "+
			"plegd watches a runtime on its own node", endpoint)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q: want an absolute path, "+
			"as in %[2]s or unix://%[2]s", endpoint, UsualSockets()[0])
	}
	path = filepath.Clean(path)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("%q: want a path of at most %d bytes, the longest that a unix socket can have; "+
			"this one has %d", endpoint, maxSocketPath, len(path))
	}
	return path, nil
}

// Found is where the runtime's socket is.
type Found struct {
	// Path is the socket's path, "" when none was found; Source is where it was named.
	Path, Source string
	// Certain is true where the kubelet or a configuration named it. Serves is true where
	// it is a usual place that serves runtime.v1: the kubelet may name another one.
	Certain, Serves bool
	// Searched lists the places without a usable endpoint.
	Searched []string
}

// Finder finds the runtime's socket when nobody named it.
type Finder struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// Root is put before every other path; "" outside tests.
	Root string
	// Serves reports whether runtime.v1 is served at a socket; nil: the usual places are
	// not tried.
	Serves func(ctx context.Context, path string) bool

	table *node.Table
}

// Find looks where the kubelet looks: at its process's arguments and configuration,
// then at crictl's, then, with Serves, at the usual places. Where the kubelet's
// arguments cannot be read in time, the rest is only a guess.
func (f *Finder) Find(ctx context.Context) (found Found) {
	args, err := f.kubeletArgs(ctx)
	if err != nil {
		found.Searched = append(found.Searched, err.Error())
	}
	for _, configured := range []func() (endpoint, from string, err error){
		func() (string, string, error) {
			s, err := ReadSettings(f.Root, args)
			return s.Endpoint, s.From[health.SettingEndpoint], err
		},
		f.crictl,
	} {
		endpoint, from, failed := configured()
		if failed != nil {
			found.Searched = append(found.Searched, failed.Error())
		}
		if endpoint == "" {
			continue
		}
		path, failed := ParseEndpoint(endpoint)
		if failed == nil {
			return Found{Path: path, Source: from, Certain: err == nil}
		}
		found.Searched = append(found.Searched, from+": "+failed.Error())
	}
	f.usual(ctx, &found)
	return found
}

// kubeletArgs returns the arguments of the node's kubelet, nil where there is none.
func (f *Finder) kubeletArgs(ctx context.Context) ([]string, error) {
	if f.table == nil {
		f.table = node.NewTable(f.ProcFS)
	}
	found, err := find(ctx, f.ProcFS, f.table, 0, 0)
	if err != nil || len(found) == 0 {
		return nil, nil //nolint:nilerr // no /proc, no kubelet
	}
	if args := Args(found[0].Comm, f.table.Args(found[0].ID())); args != nil {
		return args, nil
	}
	return nil, errors.New("the arguments of the kubelet's process: not readable in time")
}

// crictl returns the endpoint that crictl is set to.
func (f *Finder) crictl() (endpoint, from string, err error) {
	b, err := node.ReadLimited(f.Root+crictlConfig, maxConfigBytes)
	var c struct {
		Endpoint string `yaml:"runtime-endpoint"`
	}
	if err == nil {
		err = yaml.Unmarshal(b, &c)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("%s: %w", crictlConfig, err)
	}
	return c.Endpoint, crictlConfig, nil
}

// usual looks for a socket that serves runtime.v1 at the usual places; where there is
// none, the first that is a socket.
func (f *Finder) usual(ctx context.Context, found *Found) {
	if f.Serves == nil {
		return
	}
	first := ""
	for _, path := range UsualSockets() {
		info, err := os.Stat(f.Root + path)
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			found.Searched = append(found.Searched, path)
			continue
		}
		if f.Serves(ctx, f.Root+path) {
			*found = Found{Path: f.Root + path, Source: "the first usual place that serves runtime.v1", Serves: true}
			return
		}
		if first == "" {
			first = f.Root + path
		}
	}
	if first != "" {
		*found = Found{Path: first, Source: "the first usual place where there is a socket"}
	}
}
