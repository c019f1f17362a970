//go:build e2e

package chaos

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// kind is a way to break the runtime.
type kind struct {
	name, reason string
	// onset is how soon the reason must stand.
	onset time.Duration
	// with are the kinds that may stand beside it: those whose evidence it does
	// not hide. A frozen runtime answers no Status, so nobody can tell of its
	// network.
	with []string
	// restarts is true where the runtime ends: the third time within five minutes
	// would rightly be RuntimeRestarting.
	restarts bool
	// inject breaks and returns what fixes it.
	inject func(*bench) (fix func())
}

const (
	unlinked  = "socket unlinked"
	killed    = "kill -9"
	ended     = "SIGTERM"
	stopped   = "SIGSTOP"
	frozen    = "cgroup frozen"
	noFiles   = "prlimit to 8 fds"
	throttled = "CPU quota of 2 ms a second"
	noCNI     = "no CNI configuration"
	shim      = "shim stopped"
)

// bench is the runtime to break.
type bench struct {
	t *testing.T
	*lab.Containerd
	pods []*lab.Pod
	// cpu is the cgroup that gets a quota. The runtime is in it all the time: a
	// quota comes to where it is, not the runtime to a quota.
	cpu *lab.ControlGroup
}

// start starts the runtime again.
func (b *bench) start() {
	b.Start()
	b.cpu = lab.NewControlGroup(b.t, "cpu", b.Pid())
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// soon and status are the limits until a reason must stand; status where Status shows it.
const soon, status = 3 * time.Second, 8 * time.Second

// kinds are all ways.
var kinds = []kind{
	{name: unlinked, reason: health.RuntimeSocketUnlinked, onset: soon, with: []string{shim, noCNI}, inject: func(b *bench) func() {
		b.must(os.Rename(b.Socket, b.Socket+".kept"))
		return func() { b.must(os.Rename(b.Socket+".kept", b.Socket)) }
	}},
	{name: killed, reason: health.RuntimeNotListening, onset: soon, restarts: true, inject: func(b *bench) func() {
		b.Kill()
		return b.start
	}},
	{name: ended, reason: health.RuntimeSocketMissing, onset: soon, restarts: true, inject: func(b *bench) func() {
		b.Terminate()
		return b.start
	}},
	{name: stopped, reason: health.RuntimeFrozen, onset: soon, with: []string{shim}, inject: func(b *bench) func() {
		b.Freeze()
		return b.Thaw
	}},
	{name: frozen, reason: health.RuntimeFrozen, onset: soon, with: []string{shim}, inject: func(b *bench) func() {
		g := lab.NewControlGroup(b.t, "freezer", b.Pid())
		g.Freeze(true)
		return func() { g.Freeze(false) }
	}},
	{name: noFiles, reason: health.AcceptFDExhausted, onset: soon, with: []string{shim}, inject: func(b *bench) func() { return b.LimitFiles(8) }},
	{name: throttled, reason: health.RuntimeThrottled, onset: soon, inject: func(b *bench) func() {
		b.cpu.Enter()
		b.cpu.Quota(time.Millisecond)
		return func() { b.cpu.Quota(0) }
	}},
	{name: noCNI, reason: health.NetworkNotReady, onset: status, with: []string{shim, unlinked}, inject: func(b *bench) func() {
		b.must(os.Remove(b.CNIConfig))
		return b.WriteCNIConfig
	}},
	{name: shim, reason: health.ShimStuck, onset: soon, with: []string{unlinked, stopped, frozen, noFiles, noCNI}, inject: func(b *bench) func() {
		pid := b.Shim(b.pods[0])
		b.must(syscall.Kill(pid, syscall.SIGSTOP))
		return func() { b.must(syscall.Kill(pid, syscall.SIGCONT)) }
	}},
}

// fits reports whether a kind may stand beside others.
func (k *kind) fits(others []*injection) bool {
	return !slices.ContainsFunc(others, func(o *injection) bool {
		return o.name == k.name || !slices.Contains(o.with, k.name) || !slices.Contains(k.with, o.name)
	})
}
