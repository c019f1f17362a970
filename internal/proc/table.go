// Package proc reads what the kernel shows of the node's processes: one process table that
// all sources of evidence share, and threads, descriptors, locks, mounts, unix sockets and
// cgroups, from /proc, /sys/fs/cgroup and sock_diag.
//
// It judges and writes nothing. It never follows a descriptor's link to the file itself,
// whose file system may be what hangs, and never connects to a socket.
package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// maxProcesses bounds the processes of one pass.
	maxProcesses = 32768
	// slowTimeout limits the wait for a file that may block, slowReaders those that do.
	slowTimeout = 200 * time.Millisecond
	slowReaders = 4
	// maxArgs bounds the arguments of a process, in bytes.
	maxArgs = 16 << 10
	// holderInterval is the time between two failed searches for a socket, and
	// maxHolders the number of sockets that are remembered.
	holderInterval = 5 * time.Second
	maxHolders     = 64
)

var (
	// ErrGone is returned for a process that has ended.
	ErrGone = fmt.Errorf("no such process: %w", fs.ErrNotExist)
	// ErrHidden is returned where descriptors of other processes cannot be read.
	ErrHidden = errors.New("the descriptors of other users' processes cannot be read: give plegd CAP_SYS_PTRACE")
)

// Processes are the processes of the node at a moment. They are not changed.
type Processes struct {
	At    time.Time
	ByPID map[int]Process
	// children are by their parent's pid, by ascending pid.
	children map[int][]Process
}

// Children returns the children of a process, by ascending pid.
func (p *Processes) Children(pid int) []Process { return slices.Clone(p.children[pid]) }

// Ancestors returns a process and those that it descends from, the nearest first.
func (p *Processes) Ancestors(pid int) (out []int) {
	for pid > 0 && !slices.Contains(out, pid) {
		out = append(out, pid)
		pid = p.ByPID[pid].PPID
	}
	return out
}

// Table is the node's process table, for several goroutines at once.
type Table struct {
	ProcFS string // where /proc is mounted
	slow   [slowReaders]bounded.Slot[[]byte]
	stats  bounded.Slot[bool] // of stat(2) on file systems that may hang

	passing sync.Mutex // one pass at a time
	last    *Processes

	mu      sync.Mutex        // of the following fields
	args    map[ID][]string   // nil for those that cannot be read in time
	holders map[uint32]holder // by the socket's inode
}

// holder is how a search for the holder of a socket ended.
type holder struct {
	id  ID
	err error
	at  time.Time
}

// NewTable returns a table of the processes below procfs.
func NewTable(procfs string) *Table {
	return &Table{ProcFS: procfs, args: map[ID][]string{}, holders: map[uint32]holder{}}
}

// Processes returns the processes, read again if the last pass is older than
// maxAge. Zombies are left out. The error is of /proc itself, or of ctx.
func (t *Table) Processes(ctx context.Context, maxAge time.Duration) (*Processes, error) {
	t.passing.Lock()
	defer t.passing.Unlock()
	if t.last != nil && time.Since(t.last.At) < maxAge {
		return t.last, nil
	}
	pids, err := Numbers(t.ProcFS, maxProcesses+1)
	if err == nil && (len(pids) == 0 || len(pids) > maxProcesses) {
		err = fmt.Errorf("%s shows none, or more than %d", t.ProcFS, maxProcesses)
	}
	slices.Sort(pids)
	next := &Processes{At: time.Now(), ByPID: make(map[int]Process, len(pids)), children: map[int][]Process{}}
	for _, pid := range pids {
		if p, err := t.Alive(pid); err == nil { // or it has just ended
			next.ByPID[pid] = p
			next.children[p.PPID] = append(next.children[p.PPID], p)
		}
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	t.last = next
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.args, func(id ID, args []string) bool { return args == nil || next.ByPID[id.PID].ID() != id })
	return next, nil
}

// Alive returns a process as it is now; an error that it is gone where it has ended.
func (t *Table) Alive(pid int) (Process, error) {
	p, err := ReadStat(t.ProcFS, pid)
	if err == nil && p.Dead() {
		err = ErrGone
	}
	return p, err
}

// ReadSlow reads a file that blocks while its process is wedged, as cmdline, syscall and
// mountinfo do while the memory map is locked. A read that does not return in time is
// abandoned: the error is bounded.ErrLate then, and bounded.ErrBusy while too many hang.
func (t *Table) ReadSlow(path string, limit int) (b []byte, err error) {
	for i := range t.slow {
		b, err = t.slow[i].Do(context.Background(), slowTimeout, func(context.Context) ([]byte, error) {
			return ReadLimited(path, limit)
		})
		if !errors.Is(err, bounded.ErrBusy) {
			break
		}
	}
	return b, err
}

// Args returns the arguments of a process, nil where they cannot be read in time.
// They are read once for each process; once in a pass where they cannot be.
func (t *Table) Args(id ID) []string {
	t.mu.Lock()
	args, known := t.args[id]
	t.mu.Unlock()
	if known || id.PID == 0 {
		return args
	}
	b, err := t.ReadSlow(Path(t.ProcFS, id.PID, "cmdline"), maxArgs)
	if err == nil {
		args = append([]string{}, SplitArgs(b)...) // of a kernel thread empty, and not nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.args[id] = args
	return args
}

// Holder returns the process that has a socket open; of several the one with the smallest
// pid, and never pid 1, which keeps what systemd made. ErrGone where none has, ErrHidden
// where the descriptors of some cannot be read. What a search has found counts while the
// process lives; a search that found nothing is repeated after holderInterval.
func (t *Table) Holder(ctx context.Context, inode uint32) (Process, error) {
	t.mu.Lock()
	known := t.holders[inode]
	t.mu.Unlock()
	if p, err := t.Alive(known.id.PID); err == nil && p.ID() == known.id {
		return p, nil
	}
	if known.err != nil && time.Since(known.at) < holderInterval {
		return Process{}, known.err
	}
	link := fmt.Sprintf("socket:[%d]", inode)
	pids, err := Holders(ctx, t.ProcFS, func(_, _ int, to string) bool { return to == link })
	p, err := Process{}, cmp.Or(err, ErrGone)
	if i := slices.IndexFunc(pids, func(pid int) bool { return pid != 1 }); i >= 0 {
		p, err = t.Alive(pids[i])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.holders) >= maxHolders {
		clear(t.holders)
	}
	t.holders[inode] = holder{id: p.ID(), err: err, at: time.Now()}
	return p, err
}

// Holders returns the processes that have a descriptor for which keep is true, by where it
// leads; ascending. ErrHidden where the descriptors of some cannot be read.
func Holders(ctx context.Context, procfs string, keep func(pid, fd int, to string) bool) (out []int, err error) {
	pids, err := Numbers(procfs, maxProcesses)
	slices.Sort(pids)
	for _, pid := range pids {
		failed := EachFD(procfs, pid, func(fd int, to string) bool {
			found := keep(pid, fd, to)
			if found {
				out = append(out, pid)
			}
			return !found && ctx.Err() == nil
		})
		if failed != nil && !Gone(failed) {
			err = ErrHidden
		}
	}
	return out, cmp.Or(ctx.Err(), err)
}

// Kind is what a process is, by its name.
type Kind string

// The kinds of processes; "" is any other.
const (
	KindShim    Kind = "shim"    // containerd's shims, conmon
	KindOCI     Kind = "oci"     // runc, crun, youki
	KindKubelet Kind = "kubelet" // also k3s and microk8s, which have it built in
)

// kinds are the kinds by name, of which the kernel keeps 15 bytes.
var kinds = map[string]Kind{
	"conmon": KindShim, "conmonrs": KindShim,
	"runc": KindOCI, "crun": KindOCI, "youki": KindOCI,
	"kubelet": KindKubelet, "k3s-server": KindKubelet, "k3s-agent": KindKubelet, "kubelite": KindKubelet,
}

// Kind returns the kind of the process.
func (p Process) Kind() Kind {
	if strings.HasPrefix(p.Comm, "containerd-shim") {
		return KindShim
	}
	return kinds[p.Comm]
}

// SharesNamespaces reports whether a process is in the namespaces of another, of the
// kinds "pid", "mnt" or "net". A container's process has a mount namespace of its own, also
// in a pod with the node's PIDs. Without CAP_SYS_PTRACE only the depth of the PID namespace
// is known.
func SharesNamespaces(procfs string, pid, other int, kinds ...string) bool {
	depth := func(pid int) int { // 0 where that is not known
		b, _ := ReadFile(Path(procfs, pid, "status"))
		return len(strings.Fields(value(b, "NSpid")))
	}
	for _, kind := range kinds {
		a, errA := os.Readlink(Path(procfs, pid, "ns/"+kind))
		b, errB := os.Readlink(Path(procfs, other, "ns/"+kind))
		if known := errA == nil && errB == nil; known && a != b || !known && depth(pid) != depth(other) {
			return false
		}
	}
	return true
}

// ShimID returns the id of the sandbox or container that a shim or conmon serves, by its
// arguments; "" where they name none.
func (p Process) ShimID(args []string) string {
	name := "id"
	if strings.HasPrefix(p.Comm, "conmon") {
		name = "c"
	}
	id := ArgValue(args, name)
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// lasting are the names of children that run for long by design: decompressors, port
// forwarding, and daemons that dockerd starts.
var lasting = []string{
	"unpigz", "pigz", "igzip", "gzip", "zstd", "ctd-decoder", "socat", "nsenter", "docker-proxy", "docker-init",
	"containerd", "dockerd", "buildkitd",
}

// setup is, in clock ticks, how long after its start a shim starts processes that live
// as long as it does, such as the logger of a container.
const setup = 2 * ClockTicks

// ociCommands are the commands of an OCI runtime that end soon.
var ociCommands = []string{
	"create", "start", "delete", "kill", "state", "update", "pause", "resume", "checkpoint", "restore", "ps",
}

// IsShimCommand reports whether the arguments of a shim are those of a command that ends soon:
// it starts the shim, or deletes what is left of one.
func IsShimCommand(args []string) bool {
	if len(args) == 0 {
		return false
	}
	command := args[len(args)-1]
	return command == "start" || command == "delete"
}

// IsHelper reports whether a child of the runtime or of a shim is to end soon, under any
// name: runc, a CNI plugin, a hook. A container's own process is none: whether it shares their
// namespaces is checked besides. Nor is one that may run for long by design: an NRI plugin, or
// an OCI runtime while somebody uses exec.
func IsHelper(p, parent Process, args []string) bool {
	nri := func(arg string) bool { return path.IsAbs(arg) && strings.Contains(arg, "/nri/") }
	switch {
	case p.Kind() == KindShim:
		return IsShimCommand(args) || p.Comm == parent.Comm && p.State == 'D' // it cannot begin its program
	case p.Comm == parent.Comm: // likewise
		return true
	case strings.HasPrefix(p.Comm, "runc:["), slices.Contains(lasting, p.Comm),
		slices.Contains(args, "exec"), slices.ContainsFunc(args[:min(len(args), 2)], nri):
		return false
	case p.Kind() != KindOCI && parent.Kind() == KindShim && p.Start <= parent.Start+setup:
		return slices.ContainsFunc(ociCommands, func(c string) bool { return slices.Contains(args, c) })
	}
	return true
}
