package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/evidence/node"
)

// maxSocketPath is what a unix socket address holds besides its terminating
// zero (unix(7), sun_path).
const maxSocketPath = 107

// maxConfigBytes bounds what is read of a configuration file.
const maxConfigBytes = 1 << 20

const (
	defaultConfig = "/var/lib/kubelet/config.yaml"
	crictlConfig  = "/etc/crictl.yaml"
)

// UsualSockets are the places where runtimes listen, in the order in which they
// are tried: containerd, CRI-O, cri-dockerd, k3s and RKE2, k0s, microk8s.
func UsualSockets() []string {
	return []string{
		"/run/containerd/containerd.sock",
		"/run/crio/crio.sock",
		"/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock",
		"/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock",
	}
}

// ParseEndpoint returns the socket's path of an endpoint: an absolute path or a
// unix:// URL. The error names the value and what is allowed.
func ParseEndpoint(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case !isURL && strings.Contains(endpoint, "://"):
		return "", fmt.Errorf("%q: want an absolute path or a unix:// URL: plegd watches a runtime on its own node", endpoint)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q: want an absolute path, as in /run/containerd/containerd.sock or unix:///run/containerd/containerd.sock", endpoint)
	}
	path = filepath.Clean(path)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("%q: want a path of at most %d bytes, the longest that a unix socket can have; this one has %d", endpoint, maxSocketPath, len(path))
	}
	return path, nil
}

// Found is where the runtime's socket is.
type Found struct {
	// Path is the socket's path, empty when none was found.
	Path string
	// Source says who named it.
	Source string
	// Certain is true where the kubelet or a configuration named it. Serves is true where
	// it is a usual place that serves runtime.v1: the kubelet may name another one.
	Certain, Serves bool
	// Searched lists what was looked at when nothing was found.
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

// Find looks where the kubelet looks: at its process's arguments, at its configuration
// file, then at crictl's, then, with Serves, at the usual places. Where the kubelet's
// arguments cannot be read in time, the rest is only a guess.
func (f *Finder) Find(ctx context.Context) Found {
	args, err := f.kubeletArgs(ctx)
	found := f.find(ctx, args)
	if err != nil {
		found.Certain = false
		found.Searched = append([]string{err.Error()}, found.Searched...)
	}
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
	return nil, errArgs
}

func (f *Finder) find(ctx context.Context, args []string) Found {
	var searched []string
	configs := []string{defaultConfig}
	if args != nil {
		if e := flagValue(args, "container-runtime-endpoint"); e != "" {
			if path, err := ParseEndpoint(e); err == nil {
				return Found{Path: path, Source: "the kubelet's arguments", Certain: true}
			}
			searched = append(searched, "the kubelet's --container-runtime-endpoint="+e)
		}
		if c := flagValue(args, "config"); filepath.IsAbs(c) {
			configs = []string{c}
		}
	}
	for _, file := range append(configs, crictlConfig) {
		e, err := f.configured(file)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				searched = append(searched, fmt.Sprintf("%s: %v", file, err))
			}
			continue
		}
		if path, err := ParseEndpoint(e); err == nil {
			return Found{Path: path, Source: file, Certain: true}
		}
	}
	first := ""
	for _, path := range UsualSockets() {
		if f.Serves == nil {
			break
		}
		info, err := os.Stat(f.Root + path)
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			searched = append(searched, path)
			continue
		}
		if f.Serves(ctx, f.Root+path) {
			return Found{Path: f.Root + path, Source: "the first usual place that serves runtime.v1", Serves: true}
		}
		if first == "" {
			first = f.Root + path
		}
		searched = append(searched, path+" (does not serve runtime.v1 now)")
	}
	if first != "" {
		return Found{Path: first, Source: "the first usual place where there is a socket"}
	}
	return Found{Searched: searched}
}

// configured returns the endpoint that a configuration file names.
func (f *Finder) configured(file string) (string, error) {
	r, err := os.Open(f.Root + file)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxConfigBytes))
	if err != nil {
		return "", err
	}
	var c struct {
		Kubelet string `yaml:"containerRuntimeEndpoint"`
		Crictl  string `yaml:"runtime-endpoint"`
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		return "", err
	}
	if c.Kubelet != "" {
		return c.Kubelet, nil
	}
	return c.Crictl, nil
}
