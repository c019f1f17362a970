// Package kubelet finds and reads the node's own kubelet: its process, its settings, its
// healthz and metrics, and the runtime's socket that it is set to.
//
// It talks to the hosts of the configured URLs only, and starts nothing.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// searchInterval is the age of the process table that a search accepts, and firstSearch
	// while no kubelet has been seen.
	searchInterval = 5 * time.Second
	firstSearch    = 30 * time.Second
	// readAgainAfter is the time between two attempts to read settings that could not be read.
	readAgainAfter = 10 * time.Second
	// socketTimeout limits the look at sockets' files.
	socketTimeout = time.Second
)

// ErrNone is returned where the node has no kubelet.
var ErrNone = errors.New("no kubelet on this node")

// errNotTaken is wrapped where a process is certainly not the node's kubelet.
var errNotTaken = errors.New("is not taken for the node's kubelet")

// Process samples the process and the settings of the kubelet.
type Process struct {
	ProcFS string
	Table  *proc.Table
	// Endpoint returns the path of the watched runtime's socket and Runtime its process, ""
	// and 0 while unknown: a kubelet in another network namespace is not this node's.
	Endpoint func() string
	Runtime  func() int
	// Pinned is true where the user has named the socket: a kubelet that is set to another
	// one is not this runtime's. Without it the kubelet decides which one is watched.
	Pinned bool

	id       proc.ID
	known    *settings // of the process id, nil for none
	readAt   time.Time
	settings settingsReader
	sockets  sockets
	unit     atomic.Pointer[string]
	current  atomic.Pointer[settings] // known, for other sources
	unread   proc.Unread              // by the last search
}

// Unread returns the proofs that the last search could not read and did without.
func (k *Process) Unread() map[string]string { return maps.Clone(k.unread) }

// Unit returns the systemd service that runs the kubelet, or ran the last one, without ".service";
// "" while none has been seen in a service.
func (k *Process) Unit() string {
	if unit := k.unit.Load(); unit != nil {
		return *unit
	}
	return ""
}

// Sample returns the kubelet's process; ErrNone where there is none. Arguments and files
// are read once for each start, and again while a file cannot be read.
func (k *Process) Sample(ctx context.Context) (*facts.KubeletProcess, error) {
	k.settings.procfs = k.ProcFS
	if k.known == nil {
		maxAge := firstSearch
		if k.id.PID != 0 {
			maxAge = searchInterval
		}
		return k.search(ctx, maxAge)
	}
	p, err := k.Table.Alive(k.id.PID)
	if err != nil || p.ID() != k.id {
		k.known = nil
		k.current.Store(nil)
		return k.search(ctx, 0)
	}
	if k.known.Problem != "" && time.Since(k.readAt) >= readAgainAfter {
		k.keep(p, k.read(ctx, p))
	}
	return &k.known.KubeletProcess, nil
}

// search looks for the kubelet in a process table of at most an age.
func (k *Process) search(ctx context.Context, maxAge time.Duration) (*facts.KubeletProcess, error) {
	proved, doubt, err := k.find(ctx, max(k.Runtime(), 1), maxAge)
	if err != nil {
		return nil, err
	}
	for _, p := range proved {
		found := k.read(ctx, p)
		switch {
		case found == nil:
			doubt = fmt.Errorf("the arguments of the kubelet, pid %d, cannot be read", p.PID)
		case k.watched(ctx, found, len(proved)):
			k.keep(p, found)
			return &found.KubeletProcess, nil
		default:
			doubt = nil // the kubelet of another runtime
		}
	}
	if doubt == nil || k.id.PID != 0 && errors.Is(doubt, errNotTaken) {
		return nil, ErrNone // the kubelet that was seen has ended; another process has only its name
	}
	return nil, doubt
}

// keep keeps the settings of the kubelet.
func (k *Process) keep(p proc.Process, found *settings) {
	if found == nil {
		return
	}
	k.id = p.ID()
	k.known = found
	k.current.Store(found)
	k.readAt = time.Now()
	k.unit.Store(new(strings.TrimSuffix(found.Unit, ".service")))
}

// read reads the settings of a process; nil while its arguments cannot be read.
func (k *Process) read(ctx context.Context, p proc.Process) *settings {
	args := k.Table.Args(p.ID())
	if args == nil {
		return nil
	}
	found := k.settings.read(ctx, p.PID, p.Comm, args)
	found.PID = p.PID
	found.Started = proc.StartedAt(time.Now(), proc.Uptime(), p.Start)
	found.StartTicks = p.Start
	cgroup, _ := proc.ReadFile(proc.Path(k.ProcFS, p.PID, "cgroup")) // without it there is no unit
	found.Unit = proc.ParseCgroups(cgroup).Service()
	return &found
}

// watched reports whether a kubelet is that of the watched runtime. kubelets is how many
// there are.
func (k *Process) watched(ctx context.Context, found *settings, kubelets int) bool {
	watched := k.Endpoint()
	if found.Endpoint == "" || watched == "" {
		return kubelets == 1
	}
	path, err := ParseEndpoint(found.Endpoint)
	switch {
	case err != nil, path == watched, !k.Pinned && kubelets == 1:
		return true
	}
	return k.sockets.equal(ctx, found.tree.root+path, watched)
}

// find returns the kubelets that share the network namespace of a process and are proved to
// be the node's own, by ascending pid. doubt says why another one is not; nil for none.
func (k *Process) find(ctx context.Context, peer int, maxAge time.Duration) (proved []proc.Process, doubt, err error) {
	all, err := k.Table.Processes(ctx, maxAge)
	if err != nil {
		return nil, nil, err
	}
	identifyFirst := sync.OnceValues(func() (proc.Identity, error) { return k.Table.Identify(ctx, 1) })
	k.unread = proc.Unread{}
	k.unread.Add("processes", all.Unread)
	for _, p := range all.ByPID {
		if !family.NamedKubelet(p) {
			continue
		}
		if !k.isNear(p.PID, peer) {
			continue
		}
		id, err := k.Table.Identify(ctx, p.PID)
		if err != nil {
			continue // it has ended, or is another one by now
		}
		first, err := identifyFirst()
		if err != nil {
			return nil, nil, err // without it no process is proved
		}
		err = k.prove(id, first)
		if err != nil {
			doubt = err
			continue
		}
		proved = append(proved, p)
	}
	slices.SortFunc(proved, func(a, b proc.Process) int { return a.PID - b.PID })
	return proved, doubt, nil
}

// isNear reports whether a process shares the network namespace of another. Where that is denied the
// other proofs decide.
func (k *Process) isNear(pid, peer int) bool {
	shares, err := proc.SharesNamespace(k.ProcFS, pid, peer, "net")
	k.unread.Add("network namespace", err)
	return shares || err != nil
}

// prove returns why a process is not taken for a kubelet of the node, nil where it is.
func (k *Process) prove(id, first proc.Identity) error {
	answer := family.Kubelet(id, first)
	if answer.Proven() {
		for _, part := range answer.Unproven {
			k.unread.Add(string(part), id.Unread[part])
		}
		return nil
	}
	doubt := fmt.Errorf("pid %d (%s) %w: %s", id.PID, plain.Text(id.Comm), errNotTaken, answer.Refused)
	if answer.Err != nil {
		return errors.New(doubt.Error()) // it may be the kubelet
	}
	return doubt
}
