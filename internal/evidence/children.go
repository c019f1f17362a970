package evidence

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// keptChildren is how many stuck or old children are named.
	keptChildren = 5
	// helperAge is how long a helper must have run to be worth a word; whether
	// it is too long is for the classifier to say.
	helperAge = 5 * time.Second
)

// childrenSource looks at the processes that the runtime leaves its work to.
type childrenSource struct {
	procfs, cgroups string
	pid             func() int
	socket          func() string
	boot            time.Time
	since           map[childKey]childState
}

// childKey is one process: a pid alone may be another one a moment later.
type childKey struct {
	pid   int
	start uint64
}

type childState struct {
	state string
	since time.Time
	args  *shimArgs
}

// shimArgs is what a stuck shim's arguments say. They are read once, in a
// goroutine of their own: reading the arguments of a process that is wedged can
// block for ever.
type shimArgs struct {
	read atomic.Pointer[shimFlags]
}

type shimFlags struct {
	sandbox, address string
}

// NewChildren returns the source about shims, conmons and the runtime's
// helpers. pid names the runtime's process, 0 for none; socket is the runtime's
// path: a stuck shim that serves another one, as dockerd's containerd has, is
// none of it. It looks every 2 s, at /proc/PID/stat, and at the arguments of
// what is stuck, and needs no privilege.
func NewChildren(procfs, sysfs string, pid func() int, socket func() string) *Watch[health.Children] {
	c := &childrenSource{procfs: procfs, cgroups: filepath.Join(sysfs, "fs/cgroup"), pid: pid, socket: socket, since: map[childKey]childState{}}
	return NewWatch("children", Timing{Period: 2 * time.Second, Timeout: time.Second}, c.gather)
}

// isShim tells a shim or a conmon by its name, of which the kernel keeps 15
// bytes. Shims outlive the runtime and belong to another parent, so they cannot
// be told by that.
func isShim(comm string) bool {
	return strings.HasPrefix(comm, "containerd-shim") || comm == "conmon" || comm == "conmonrs"
}

func (c *childrenSource) gather(ctx context.Context) (*health.Children, error) {
	runtime := c.pid()
	if runtime == 0 {
		return nil, ErrNoData
	}
	if c.boot.IsZero() {
		boot, err := bootTime(c.procfs)
		if err != nil {
			return nil, err
		}
		c.boot = boot
	}
	all, err := pids(c.procfs, maxProcesses)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	v := &health.Children{At: now}
	since := map[childKey]childState{}
	for _, pid := range all {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s, err := readStat(c.procfs, strconv.Itoa(pid))
		if err != nil || s.state == 'Z' {
			continue
		}
		switch {
		case isShim(s.comm):
			v.Shims++
			c.shim(s, now, since, v)
		case s.ppid == runtime && pid != runtime:
			started := c.boot.Add(time.Duration(s.start) * time.Second / clockTicks)
			if now.Sub(started) >= helperAge {
				v.Old = append(v.Old, health.Child{PID: pid, Comm: s.comm, State: threadState(s.state), Since: started})
			}
		}
	}
	c.since = since
	longest := func(a, b health.Child) int { return a.Since.Compare(b.Since) }
	slices.SortFunc(v.Stuck, longest)
	slices.SortFunc(v.Old, longest)
	v.Stuck, v.Old = v.Stuck[:min(len(v.Stuck), keptChildren)], v.Old[:min(len(v.Old), keptChildren)]
	return v, nil
}

// shim notes a shim that does not run, and since when.
func (c *childrenSource) shim(s procStat, now time.Time, since map[childKey]childState, v *health.Children) {
	state := threadState(s.state)
	if state != "T" && state != "D" {
		return
	}
	key := childKey{s.pid, s.start}
	known, ok := c.since[key]
	if !ok || known.state != state {
		known = childState{state: state, since: now, args: known.args}
	}
	if known.args == nil {
		known.args = &shimArgs{}
		go known.args.find(c.procfs, s.pid)
	}
	since[key] = known
	child := health.Child{PID: s.pid, Comm: s.comm, State: c.frozenOr(s.pid, state), Since: known.since}
	if flags := known.args.read.Load(); flags != nil {
		if flags.address != "" && c.socket() != "" && !samePath(flags.address, c.socket()) {
			return
		}
		child.Sandbox = flags.sandbox
	}
	v.Stuck = append(v.Stuck, child)
}

// find reads the arguments: containerd-shim-runc-v2 -namespace k8s.io -id ID
// -address /run/containerd/containerd.sock.
func (a *shimArgs) find(procfs string, pid int) {
	b, err := readProc(procfs, strconv.Itoa(pid), "cmdline")
	if err != nil {
		return
	}
	f := &shimFlags{}
	args := strings.Split(string(b), "\x00")
	for i, arg := range args[:max(0, len(args)-1)] {
		switch arg {
		case "-id":
			f.sandbox = args[i+1]
		case "-address":
			f.address = args[i+1]
		}
	}
	a.read.Store(f)
}

// samePath compares two paths of sockets; /var/run is /run everywhere.
func samePath(a, b string) bool {
	plain := func(p string) string {
		return strings.Replace(filepath.Clean(p), "/var/run/", "/run/", 1)
	}
	return plain(a) == plain(b)
}

// frozenOr returns F for a process in D whose v1 freezer is frozen, which looks
// like D, else its state.
func (c *childrenSource) frozenOr(pid int, state string) string {
	if state != "D" {
		return state
	}
	b, err := readProc(c.procfs, strconv.Itoa(pid), "cgroup")
	if err != nil {
		return state
	}
	v := health.Cgroup{}
	(&cgroupSource{root: c.cgroups}).frozen(parseCgroups(b), &v)
	if v.Frozen {
		return "F"
	}
	return state
}
