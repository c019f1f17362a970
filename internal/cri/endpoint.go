package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"go.yaml.in/yaml/v2"
)

// maxSocketPath is what a unix socket address holds besides its terminating
// zero (unix(7), sun_path).
const maxSocketPath = 107

// maxConfigBytes bounds what is read of a configuration file.
const maxConfigBytes = 1 << 20

const (
	kubeletConfig = "/var/lib/kubelet/config.yaml"
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
	// Certain is true when the kubelet or a configuration named it, or when it
	// serves runtime.v1; false when it is only the first that exists.
	Certain bool
	// Searched lists what was looked at when nothing was found.
	Searched []string
}

// Finder finds the runtime's socket when nobody named it.
type Finder struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// Root is put before every other path; "" outside tests.
	Root string
	// Serves reports whether runtime.v1 is served at a socket.
	Serves func(ctx context.Context, path string) bool

	// reading is true while the kubelet's arguments are read.
	reading atomic.Bool
}

// argsTimeout limits the wait for the kubelet's arguments: a read of
// /proc/PID/cmdline blocks while that process is stuck in the kernel.
const argsTimeout = 2 * time.Second

// Find looks where the kubelet looks: at its process's arguments, at its
// configuration file, then at crictl's, then at the usual places. Where the
// kubelet's arguments cannot be read in time, the rest is only a guess.
func (f *Finder) Find(ctx context.Context) Found {
	args, err := f.kubeletArgs(ctx)
	found := f.find(ctx, args)
	if err != nil {
		found.Certain = false
		found.Searched = append([]string{err.Error()}, found.Searched...)
	}
	return found
}

func (f *Finder) find(ctx context.Context, args []string) Found {
	var searched []string
	configs := []string{kubeletConfig}
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
		info, err := os.Stat(f.Root + path)
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			searched = append(searched, path)
			continue
		}
		if f.Serves(ctx, f.Root+path) {
			return Found{Path: f.Root + path, Source: "the first usual place that serves runtime.v1", Certain: true}
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

var errArgsTimeout = errors.New("the arguments of the kubelet's process: not readable in time")

// kubeletArgs returns the arguments of the kubelet's process, nil when none is
// found. A read that blocks is abandoned, and another is made only when it has
// returned.
func (f *Finder) kubeletArgs(ctx context.Context) ([]string, error) {
	if !f.reading.CompareAndSwap(false, true) {
		return nil, errArgsTimeout
	}
	args := make(chan []string, 1)
	go func() {
		a := f.readKubeletArgs()
		f.reading.Store(false)
		args <- a
	}()
	timer := time.NewTimer(argsTimeout)
	defer timer.Stop()
	select {
	case a := <-args:
		return a, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, errArgsTimeout
}

func (f *Finder) readKubeletArgs() []string {
	fs, err := procfs.NewFS(f.ProcFS)
	if err != nil {
		return nil
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return nil
	}
	for _, p := range procs {
		if comm, err := p.Comm(); err != nil || comm != "kubelet" {
			continue
		}
		if f.inPod(p.PID) {
			continue // a container may call itself what it likes
		}
		if args, err := p.CmdLine(); err == nil && len(args) > 0 {
			return args
		}
	}
	return nil
}

// inPod reports whether a process is a pod's: the kubelet puts every pod into a
// cgroup below kubepods or kubepods.slice.
func (f *Finder) inPod(pid int) bool {
	r, err := os.Open(filepath.Join(f.ProcFS, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxCgroupBytes))
	return err == nil && strings.Contains(string(b), "/kubepods")
}

// maxCgroupBytes bounds what is read of a /proc/PID/cgroup.
const maxCgroupBytes = 64 << 10

// flagValue returns the last value of a flag, written as --name=value or as
// --name value, with one dash or two.
func flagValue(args []string, name string) string {
	value := ""
	for i, a := range args {
		flag, ok := strings.CutPrefix(a, "-")
		if !ok {
			continue
		}
		flag = strings.TrimPrefix(flag, "-")
		if v, ok := strings.CutPrefix(flag, name+"="); ok {
			value = v
		} else if flag == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
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
