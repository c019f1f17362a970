//go:build e2e

package faults

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// The runtimes that rows are made on.
var (
	onContainerd = []string{"containerd"}
	// onContainerd1 is for what containerd 2 ends after 2 s.
	onContainerd1 = []string{"containerd 1."}
	onContainerd2 = []string{"containerd 2."}
	onCRIO        = []string{"CRI-O"}
	onDocker      = []string{"cri-dockerd"}
)

// starting are the reasons of a runtime that starts: it removes a stale socket first.
var starting = []string{health.RuntimeNotListening, health.RuntimeSocketMissing, health.RuntimeStarting}

// noDescriptor is true of a runtime without a free descriptor until a client connects.
var noDescriptor = []string{health.FDsRunningOut}

// unprivileged is a plegd that may connect only where the mode of the socket says so.
var unprivileged = lab.PlegdOptions{DropCapabilities: []string{"dac_override", "dac_read_search"}}

// socketFaults are those of the path, the listener and its accept queue. What a fresh
// connection finds is named within 4 s.
var socketFaults = []fault{
	{
		name: "socket unlinked", want: health.RuntimeSocketUnlinked, goal: 4 * time.Second, restart: true,
		make: func(b *bench) func() {
			kept := b.socket + ".kept"
			b.must(os.Rename(b.socket, kept))
			return func() {
				_ = os.Link(kept, b.socket) // not over the one that a restart has made
				_ = os.Remove(kept)
			}
		},
	},
	{
		name: "kill -9", restarts: true, want: health.RuntimeNotListening, goal: 3 * time.Second, onTheWayBack: starting,
		make: func(b *bench) func() {
			b.Kill()
			return b.Start
		},
	},
	{
		name: "SIGTERM", on: []string{"containerd", "CRI-O"}, restarts: true,
		want: health.RuntimeSocketMissing, goal: 3 * time.Second, onTheWayBack: starting, make: terminate,
	},
	{
		name: "SIGTERM, the socket's file stays", on: onDocker, restarts: true,
		want: health.RuntimeNotListening, goal: 3 * time.Second, onTheWayBack: starting, make: terminate,
	},
	{
		name: "400 idle connections, 256 fds", want: health.AcceptFDExhausted, goal: 4 * time.Second, restart: true,
		options: runtime.ContainerdOptions{OpenFiles: 256}, onTheWay: noDescriptor,
		make: func(b *bench) func() { return b.connect(400) },
		steps: []pasted{
			{holds: "ls -l /proc/", want: "socket"},
			{holds: "ss -xp", wantOf: func(*bench) string { return fmt.Sprintf("pid=%d,", os.Getpid()) }},
		},
	},
	{
		name: "prlimit to 8 fds", want: health.AcceptFDExhausted, goal: 4 * time.Second, onTheWay: noDescriptor,
		make:  func(b *bench) func() { return b.LimitFiles(8) },
		steps: []pasted{{holds: "prlimit --nofile", repairs: true}},
	},
	{
		name: "prlimit to 8 fds, accept queue filled", want: health.AcceptFDExhausted, goal: 4 * time.Second, restart: true,
		also: []string{health.AcceptStalled}, onTheWay: append([]string{health.AcceptStalled}, noDescriptor...),
		make: func(b *bench) func() {
			undo := b.LimitFiles(8)
			end := b.connect(10000)
			return inTurn(end, undo)
		},
	},
	{
		// Lists are answered, and no pod can be started.
		name: "prlimit to files of 1 KiB", on: onContainerd, want: health.KernelLimitReached, goal: 10 * time.Second, // limits are read each 8 s in calm
		evidence: constant("RLIMIT_FSIZE"),
		make: func(b *bench) func() {
			limit := func(bytes uint64) {
				b.must(unix.Prlimit(b.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
			}
			limit(1 << 10)
			return func() { limit(unix.RLIM_INFINITY) }
		},
		steps: []pasted{{holds: "prlimit --fsize", repairs: true}},
	},
	{
		name: "nobody accepts, accept queue filled", want: health.AcceptStalled, goal: 4 * time.Second, simulate: fewPods,
		make: func(b *bench) func() { return noAccept(b, "") },
	},
	{
		name: "chmod 000", want: health.RuntimeSocketPermissionDenied, goal: 4 * time.Second, plegd: unprivileged,
		make: func(b *bench) func() {
			info, err := os.Stat(b.socket)
			b.must(err)
			b.must(os.Chmod(b.socket, 0))
			return func() { b.must(os.Chmod(b.socket, info.Mode().Perm())) }
		},
		steps: []pasted{{holds: "stat ", want: "(0000/s"}},
	},
	inTheWay("a directory", func(path string) error { return os.Mkdir(path, 0o755) }),
	inTheWay("a link to itself", func(path string) error { return os.Symlink(path, path) }),
	inTheWay("a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o600) }),
	inTheWay("a datagram socket", func(path string) error {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Close(fd) }()
		return syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
	}),
}

var fewPods = []string{"--pods=5"}

// terminate sends SIGTERM: a runtime whose stop waits for a client or a shim lives on.
func terminate(b *bench) func() {
	b.must(syscall.Kill(b.Pid(), syscall.SIGTERM))
	return func() { b.Restart() }
}

func noAccept(b *bench, besides string) func() {
	undo := b.failpoints("socket=noaccept" + besides)
	end := b.connect(10000)
	return inTurn(end, undo)
}

// inTheWay puts something else at the path of a runtime that answers on the held
// connection: it must be removed, and the runtime needs no start.
func inTheWay(what string, put func(path string) error) fault {
	return fault{
		name: what + " at the path", want: health.RuntimeNotListening, goal: 4 * time.Second,
		make: func(b *bench) func() {
			kept := b.socket + ".kept"
			b.must(os.Rename(b.socket, kept))
			b.must(put(b.socket))
			return func() {
				b.must(os.Remove(b.socket))
				b.must(os.Rename(kept, b.socket))
			}
		},
		next: func(b *bench) string { return "emove" },
	}
}

// takeOvers lead the path to another process while the runtime lives.
var takeOvers = []fault{
	secondAt(fault{
		name: "a second runtime takes the socket", on: []string{"containerd", "cri-dockerd"},
		incident: "12 a second runtime on the socket's path",
		prepare:  secondAtPath,
		make: func(b *bench) func() {
			back := b.keepSocket()
			b.launchSecond()
			return inTurn(back, b.second.Kill)
		},
	}),
	secondAt(fault{
		// EAGAIN looks to CRI-O like a socket that a dead one has left behind.
		name: "a second CRI-O takes a full accept queue for a stale socket", on: onCRIO,
		incident: "12c [cri-o](https://github.com/cri-o/cri-o): EAGAIN taken for a stale socket",
		prepare:  secondAtPath,
		onTheWay: append([]string{health.AcceptFDExhausted, health.AcceptStalled}, noDescriptor...),
		make: func(b *bench) func() {
			back := b.keepSocket()
			undo := b.LimitFiles(8)
			end := b.connect(10000)
			b.launchSecond()
			end()
			undo()
			return inTurn(back, b.second.Kill)
		},
	}),
	secondAt(fault{
		name: "symbolic link to another runtime's socket", incident: "12b a second runtime on the socket's path", prepare: secondRuntime,
		make: func(b *bench) func() {
			back := b.keepSocket()
			b.must(os.Symlink(b.second.Socket, b.socket+".draft"))
			b.must(os.Rename(b.socket+".draft", b.socket))
			return back
		},
		steps: []pasted{
			{holds: "ps -o pid,lstart", wantOf: func(b *bench) string { return fmt.Sprint(b.second.Pid()) }},
			{holds: "ls -li", wantOf: func(b *bench) string { return "-> " + b.second.Socket }},
		},
	}),
	secondAt(fault{
		name: "bind mount of another runtime's socket", prepare: secondRuntime,
		make: func(b *bench) func() {
			b.must(syscall.Mount(b.second.Socket, b.socket, "", syscall.MS_BIND, ""))
			return func() { b.must(syscall.Unmount(b.socket, syscall.MNT_DETACH)) }
		},
		steps: []pasted{{holds: "findmnt -T", wantOf: func(b *bench) string { return b.socket }}},
	}),
	impostorFault("an impostor that accepts and says nothing", lab.Silent, lab.PlegdOptions{}),
	impostorFault("an impostor that never accepts", lab.NeverAccepts, lab.PlegdOptions{}),
	// Without it no process can be found by its socket: a connection shows which.
	impostorFault("an impostor that never accepts, plegd without CAP_SYS_PTRACE", lab.NeverAccepts,
		lab.PlegdOptions{DropCapabilities: []string{"sys_ptrace"}}),
	impostorFault("a web server takes the socket", lab.HTTPServer, lab.PlegdOptions{}),
}

// secondAt completes a fault in which another runtime has the path.
func secondAt(f fault) fault {
	f.want, f.goal = health.RuntimeSocketTakenOver, 3*time.Second
	f.evidence = func(b *bench) string { return fmt.Sprintf("pid %d (", b.second.Pid()) }
	f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindProcess, PID: b.second.Pid()} }
	f.next = func(b *bench) string { return fmt.Sprintf("pid %d", b.second.Pid()) }
	return f
}

func impostorFault(name string, kind lab.Impostor, options lab.PlegdOptions) fault {
	return fault{
		name: name, want: health.RuntimeSocketTakenOver, goal: 3 * time.Second, plegd: options,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (", b.other) },
		make: func(b *bench) func() {
			back := b.keepSocket()
			draft := b.socket + ".draft"
			pid, stop := kind.Start(b.t, draft)
			b.other, b.injected = pid, time.Now()
			b.must(os.Rename(draft, b.socket))
			return inTurn(back, stop)
		},
	}
}

func secondAtPath(b *bench) {
	b.second = runtime.NewContainerd(b.t, runtime.ContainerdOptions{NotStarted: true})
	b.second.ListenAt(b.socket)
}

func secondRuntime(b *bench) { b.second = runtime.NewContainerd(b.t, runtime.ContainerdOptions{}) }

// launchSecond starts the second runtime, and returns when it has replaced the socket.
func (b *bench) launchSecond() {
	b.t.Helper()
	was := inode(b.socket)
	b.second.Launch()
	lab.Eventually(b.t, 20*time.Second, "the second runtime has replaced the socket", func() error {
		if inode(b.socket) == was {
			return fmt.Errorf("it is inode %d, as before", was)
		}
		return nil
	})
	b.injected = time.Now()
}

// keepSocket keeps the socket's file by another name, and returns what puts it back in
// one step.
func (b *bench) keepSocket() (back func()) {
	b.t.Helper()
	kept := b.socket + ".kept"
	b.must(os.Link(b.socket, kept))
	return func() { b.must(os.Rename(kept, b.socket)) }
}

func inode(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
