package kubelet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// searchInterval is the time between two searches of all processes.
const searchInterval = 10 * time.Second

var (
	// ErrNone is returned where the node has no kubelet.
	ErrNone = errors.New("no kubelet on this node")
	errArgs = errors.New("the arguments of the kubelet's process: not readable in time")
)

// Process samples the process and the settings of the kubelet.
type Process struct {
	procfs string
	table  *node.Table
	// endpoint is the path of the watched runtime's socket, runtime its process.
	endpoint func() string
	runtime  func() int

	id    proc.ID
	known *health.KubeletProcess
}

// NewProcess returns a reader of the kubelet's process. endpoint returns the path of the
// watched runtime's socket and runtime its process, "" and 0 while unknown: a kubelet
// that is set to another socket, or is in another network namespace, is not this node's.
func NewProcess(procfs string, table *node.Table, endpoint func() string, runtime func() int) *Process {
	return &Process{procfs: procfs, table: table, endpoint: endpoint, runtime: runtime}
}

// Sample returns the kubelet's process; ErrNone where there is none. Arguments and files
// are read once for each start.
func (k *Process) Sample(ctx context.Context) (*health.KubeletProcess, error) {
	maxAge := searchInterval
	if k.known != nil {
		if p, err := k.table.Alive(k.id.PID); err == nil && p.ID() == k.id {
			return k.known, nil
		}
		k.known, maxAge = nil, 0
	}
	found, err := find(ctx, k.procfs, k.table, k.runtime(), maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if v, ok := k.read(p, len(found) > 1); ok {
			k.known, k.id = v, p.ID()
			return v, nil
		}
	}
	return nil, ErrNone
}

// find returns the kubelets that share the network namespace of a process, 0 for the
// node's first one, and are no pod's.
func find(ctx context.Context, procfs string, table *node.Table, beside int, maxAge time.Duration) (out []node.Process, err error) {
	all, err := table.Processes(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range all.ByPID {
		if p.Kind == node.KindKubelet && !inPod(procfs, p.PID) && node.SharesNetwork(procfs, p.PID, max(beside, 1)) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b node.Process) int { return a.PID - b.PID })
	return out, nil
}

// inPod reports whether a process is a pod's: the kubelet puts every pod into a cgroup
// below kubepods or kubepods.slice.
func inPod(procfs string, pid int) bool {
	b, err := proc.ReadFile(proc.Path(procfs, pid, "cgroup"))
	return err == nil && strings.Contains(string(b), "/kubepods")
}

// read reads one kubelet's start and settings; false where it is another runtime's or,
// where there are several, is not known to be this one's.
func (k *Process) read(p node.Process, several bool) (*health.KubeletProcess, bool) {
	args := Args(p.Comm, k.table.Args(p.ID()))
	if args == nil {
		return nil, false
	}
	settings, err := ReadSettings("", args)
	path, parseErr := ParseEndpoint(settings.Endpoint)
	switch watched := k.endpoint(); {
	case settings.Endpoint == "" && several, watched == "" && several:
		return nil, false
	case parseErr == nil && watched != "" && path != watched:
		return nil, false
	}
	v := &health.KubeletProcess{
		PID: p.PID, Started: proc.StartedAt(time.Now(), proc.Uptime(), p.Start), StartTicks: p.Start,
		NodeStatusPeriod: settings.NodeStatusPeriod, RequestTimeout: settings.RequestTimeout,
		EventedPLEG: settings.EventedPLEG, From: settings.From,
	}
	if err != nil {
		v.Problem = cut(err.Error())
	}
	return v, true
}

const (
	k3sEndpoint = "/run/k3s/containerd/containerd.sock"
	k3sDropIns  = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
)

// Args returns the kubelet's arguments of a process that has a kubelet built in: of k3s
// those in --kubelet-arg and its defaults, of microk8s those in the file of
// --kubelet-args-file. Those of a plain kubelet are returned as they are.
func Args(comm string, args []string) []string {
	if len(args) == 0 {
		return nil
	}
	switch {
	case strings.HasPrefix(comm, "k3s"):
		out := []string{args[0], "--container-runtime-endpoint=" + k3sEndpoint, "--config-dir=" + k3sDropIns}
		for _, arg := range flagValues(args, "kubelet-arg") {
			out = append(out, "--"+strings.TrimLeft(arg, "-"))
		}
		for _, endpoint := range flagValues(args, "container-runtime-endpoint") {
			out = append(out, "--container-runtime-endpoint="+endpoint)
		}
		return out
	case comm == "kubelite":
		file := flagValue(args, "kubelet-args-file")
		b, err := proc.ReadLimited(file, maxConfigBytes)
		if !filepath.IsAbs(file) || err != nil {
			return args[:1]
		}
		expanded := os.Expand(string(b), func(name string) string {
			return map[string]string{"SNAP_DATA": "/var/snap/microk8s/current", "SNAP_COMMON": "/var/snap/microk8s/common"}[name]
		})
		return append([]string{args[0]}, strings.Fields(expanded)...)
	}
	return args
}

// flagValues returns the values of a flag, written as --name=value or --name value, with
// one dash or two.
func flagValues(args []string, name string) (out []string) {
	for i, arg := range args {
		flag, ok := strings.CutPrefix(arg, "-")
		if !ok {
			continue
		}
		flag = strings.TrimPrefix(flag, "-")
		if v, ok := strings.CutPrefix(flag, name+"="); ok {
			out = append(out, v)
		} else if flag == name && i+1 < len(args) {
			out = append(out, args[i+1])
		}
	}
	return out
}

// flagValue returns the last value of a flag, "" where it is not given.
func flagValue(args []string, name string) string {
	values := flagValues(args, name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
