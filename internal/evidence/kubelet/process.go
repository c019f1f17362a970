// Package kubelet finds and reads the node's own kubelet: its process, its settings, its
// healthz and metrics, and the runtime's socket that it is set to.
//
// It talks to the hosts of the configured URLs only, and starts nothing.
package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
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
	procfs string
	table  *node.Table
	// endpoint is the path of the watched runtime's socket, runtime its process.
	endpoint func() string
	runtime  func() int

	id    node.ID
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
	maxAge := firstSearch
	if k.id.PID != 0 {
		maxAge = searchInterval
	}
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
func find(
	ctx context.Context, procfs string, table *node.Table, beside int, maxAge time.Duration,
) (out []node.Process, err error) {
	all, err := table.Processes(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range all.ByPID {
		near := p.Kind() == node.KindKubelet && node.SharesNamespaces(procfs, p.PID, max(beside, 1), "net")
		if near && !inPod(procfs, p.PID) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b node.Process) int { return a.PID - b.PID })
	return out, nil
}

// inPod reports whether a process is a pod's: the kubelet puts every pod into a cgroup
// below kubepods or kubepods.slice.
func inPod(procfs string, pid int) bool {
	b, err := node.ReadFile(node.Path(procfs, pid, "cgroup"))
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
	case several && (settings.Endpoint == "" || watched == ""),
		parseErr == nil && watched != "" && path != watched:
		return nil, false
	}
	v := &health.KubeletProcess{
		PID: p.PID, Started: node.StartedAt(time.Now(), node.Uptime(), p.Start), StartTicks: p.Start,
		NodeStatusPeriod: settings.NodeStatusPeriod, RequestTimeout: settings.RequestTimeout,
		EventedPLEG: settings.EventedPLEG, From: settings.From,
	}
	if err != nil {
		v.Problem = cut(err.Error())
	}
	return v, true
}
