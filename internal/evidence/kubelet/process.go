// Package kubelet finds and reads the node's own kubelet: its process, its settings, its
// healthz and metrics, and the runtime's socket that it is set to.
//
// It talks to the hosts of the configured URLs only, and starts nothing.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// searchInterval is the age of the process table that a search accepts, and firstSearch
// while no kubelet has been seen.
const (
	searchInterval = 5 * time.Second
	firstSearch    = 30 * time.Second
)

// ErrNone is returned where the node has no kubelet.
var ErrNone = errors.New("no kubelet on this node")

// Process samples the process and the settings of the kubelet.
type Process struct {
	ProcFS string
	Table  *proc.Table
	// Endpoint returns the path of the watched runtime's socket and Runtime its process, ""
	// and 0 while unknown: a kubelet that is set to another socket, or is in another network
	// namespace, is not this node's.
	Endpoint func() string
	Runtime  func() int

	id    proc.ID
	known *facts.KubeletProcess
	unit  atomic.Pointer[string]
}

// Unit returns the systemd service that runs the kubelet, or ran the last one, without ".service";
// "" while none has been seen in a service.
func (k *Process) Unit() string {
	if unit := k.unit.Load(); unit != nil {
		return *unit
	}
	return ""
}

// serviceOf returns the systemd service of a process, without ".service"; "" for none.
func serviceOf(procfs string, pid int) (service string) {
	cgroup, err := proc.ReadFile(proc.Path(procfs, pid, "cgroup"))
	if err != nil {
		return ""
	}
	for name := range strings.SplitSeq(proc.ParseCgroups(cgroup).Main(), "/") {
		if unit, ok := strings.CutSuffix(name, ".service"); ok {
			service = unit
		}
	}
	return service
}

// Sample returns the kubelet's process; ErrNone where there is none. Arguments and files
// are read once for each start.
func (k *Process) Sample(ctx context.Context) (*facts.KubeletProcess, error) {
	maxAge := firstSearch
	if k.id.PID != 0 {
		maxAge = searchInterval
	}
	if k.known != nil {
		if p, err := k.Table.Alive(k.id.PID); err == nil && p.ID() == k.id {
			return k.known, nil
		}
		k.known, maxAge = nil, 0
	}
	found, err := k.find(ctx, max(k.Runtime(), 1), maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		args := Args(p.Comm, k.Table.Args(p.ID()))
		v, endpoint := ReadSettings("", args)
		path, err := ParseEndpoint(endpoint)
		watched := k.Endpoint()
		unclear := len(found) > 1 && (endpoint == "" || watched == "")
		if another := err == nil && watched != "" && path != watched; args == nil || unclear || another {
			continue
		}
		v.PID, v.Started, v.StartTicks = p.PID, proc.StartedAt(time.Now(), proc.Uptime(), p.Start), p.Start
		k.known, k.id = &v, p.ID()
		k.unit.Store(new(serviceOf(k.ProcFS, p.PID)))
		return k.known, nil
	}
	return nil, ErrNone
}

// find returns the kubelets that share the network namespace of a process and are no
// pod's: every pod is in a cgroup below kubepods or kubepods.slice.
func (k *Process) find(ctx context.Context, beside int, maxAge time.Duration) (out []proc.Process, err error) {
	all, err := k.Table.Processes(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range all.ByPID {
		if p.Kind() != proc.KindKubelet || !proc.SharesNamespaces(k.ProcFS, p.PID, beside, "net") {
			continue
		}
		cgroup, _ := proc.ReadFile(proc.Path(k.ProcFS, p.PID, "cgroup")) // what cannot be read is no pod's
		if !strings.Contains(string(cgroup), "/kubepods") {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b proc.Process) int { return a.PID - b.PID })
	return out, nil
}

const maxSocketPath = 107 // of sun_path without its terminating zero, unix(7)

// usualSockets are the places where runtimes listen, in the order in which they
// are tried: containerd, CRI-O, cri-dockerd, k3s and RKE2, k0s, microk8s.
var usualSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock", k3sEndpoint,
	"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock",
}

// ParseEndpoint returns the socket's path of an endpoint: an absolute path or a
// unix:// URL. The error names the value and the allowed ones.
func ParseEndpoint(endpoint string) (string, error) {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q: want an absolute path, as in %[2]s or unix://%[2]s: "+
			"plegd watches a runtime on its own node", endpoint, usualSockets[0])
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("%q: want a path of at most %d bytes, the longest that a unix socket can have; "+
			"this one has %d", endpoint, maxSocketPath, len(path))
	}
	return path, nil
}

// Found is where the runtime's socket is.
type Found struct {
	facts.Endpoint
	// Certain is true where the kubelet or a configuration named it. Serves is true where
	// it is a usual place that serves runtime.v1: the kubelet may name another one.
	Certain, Serves bool
}

// Finder finds the runtime's socket when nobody named it.
type Finder struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// Root is put before every other path; "" outside tests.
	Root string
	// Serves reports whether a socket serves runtime.v1; nil: usual places are not tried.
	Serves func(ctx context.Context, path string) bool

	kubelet Process
}

// Find looks where the kubelet looks: at its process's arguments and configuration,
// then, with Serves, at the usual places. Where the kubelet's arguments cannot be read in
// time, the rest is only a guess.
func (f *Finder) Find(ctx context.Context) (found Found) {
	if f.kubelet.Table == nil {
		f.kubelet = Process{ProcFS: f.ProcFS, Table: proc.NewTable(f.ProcFS)}
	}
	searched := func(place string) { found.Searched = append(found.Searched, place) }
	var args []string
	kubelets, _ := f.kubelet.find(ctx, 1, 0) // no /proc, no kubelet
	if len(kubelets) > 0 {
		if args = Args(kubelets[0].Comm, f.kubelet.Table.Args(kubelets[0].ID())); args == nil {
			searched("the arguments of the kubelet's process: not readable in time")
		}
	}
	v, endpoint := ReadSettings(f.Root, args)
	if v.Problem != "" {
		searched(v.Problem)
	}
	if endpoint != "" {
		from := v.From[facts.SettingEndpoint]
		path, err := ParseEndpoint(endpoint)
		if err == nil {
			return Found{Endpoint: facts.Endpoint{Path: path, Source: from}, Certain: len(kubelets) == 0 || args != nil}
		}
		searched(from + ": " + err.Error())
	}
	if f.Serves == nil {
		return found
	}
	for _, path := range usualSockets {
		info, err := os.Stat(f.Root + path)
		switch {
		case err != nil || info.Mode()&os.ModeSocket == 0:
			searched(path)
		case f.Serves(ctx, f.Root+path):
			const first = "the first usual place that serves runtime.v1"
			return Found{Endpoint: facts.Endpoint{Path: f.Root + path, Source: first}, Serves: true}
		case found.Path == "":
			found.Path, found.Source = f.Root+path, "the first usual place where there is a socket"
		}
	}
	return found
}
