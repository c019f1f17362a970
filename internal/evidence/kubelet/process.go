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
	ProcFS string
	Table  *node.Table
	// Endpoint returns the path of the watched runtime's socket and Runtime its process, ""
	// and 0 while unknown: a kubelet that is set to another socket, or is in another network
	// namespace, is not this node's.
	Endpoint func() string
	Runtime  func() int

	id    node.ID
	known *health.KubeletProcess
}

// Sample returns the kubelet's process; ErrNone where there is none. Arguments and files
// are read once for each start.
func (k *Process) Sample(ctx context.Context) (*health.KubeletProcess, error) {
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
		if v, ok := k.read(p, len(found) > 1); ok {
			k.known, k.id = v, p.ID()
			return v, nil
		}
	}
	return nil, ErrNone
}

// find returns the kubelets that share the network namespace of a process and are no
// pod's: every pod is in a cgroup below kubepods or kubepods.slice.
func (k *Process) find(ctx context.Context, beside int, maxAge time.Duration) (out []node.Process, err error) {
	all, err := k.Table.Processes(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range all.ByPID {
		if p.Kind() != node.KindKubelet || !node.SharesNamespaces(k.ProcFS, p.PID, beside, "net") {
			continue
		}
		cgroup, _ := node.ReadFile(node.Path(k.ProcFS, p.PID, "cgroup")) // what cannot be read is no pod's
		if !strings.Contains(string(cgroup), "/kubepods") {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b node.Process) int { return a.PID - b.PID })
	return out, nil
}

// read reads one kubelet's start and settings; false where it is another runtime's or,
// where there are several, is not known to be this one's.
func (k *Process) read(p node.Process, several bool) (*health.KubeletProcess, bool) {
	args := Args(p.Comm, k.Table.Args(p.ID()))
	if args == nil {
		return nil, false
	}
	v, endpoint := ReadSettings("", args)
	path, err := ParseEndpoint(endpoint)
	switch watched := k.Endpoint(); {
	case several && (endpoint == "" || watched == ""), err == nil && watched != "" && path != watched:
		return nil, false
	}
	v.PID, v.Started, v.StartTicks = p.PID, node.StartedAt(time.Now(), node.Uptime(), p.Start), p.Start
	return &v, true
}
