//go:build e2e

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// nsInitEnv holds an nsConfig in the environment of a namespace's first process, and is unset everywhere else.
const nsInitEnv = "PLEGD_LAB_NSINIT"

// NamespaceConfig says what the first process of the namespaces is to prepare.
type NamespaceConfig struct {
	// Tmpfs are directories to put a tmpfs on, so that containerd's layers lie neither on an overlay nor on the disk.
	Tmpfs []string
	// Overlay are directories whose changes stay in the namespace.
	Overlay []string
	// Shared makes the mounts propagate among the namespace's own children, as on a
	// node that systemd has booted: pods may mount directories with HostToContainer.
	Shared bool
	// Loopback brings up the loopback interface of a network namespace of its own.
	Loopback bool
	// Covers are files below /proc that programs inside may write without changing
	// the machine: each is covered by a copy of its own.
	Covers []string
	// Empty are configuration files of the machine that must not be read inside: each
	// that exists is covered by an empty one.
	Empty []string
}

// NamespaceCommand is one line to the first process: start this program.
type NamespaceCommand struct {
	Argv []string
	Env  []string
	// Log is the file that its output is appended to.
	Log string
}

// nsEvent is one line from the first process.
type nsEvent struct {
	// Ready is said once, when the mounts are made.
	Ready bool `json:",omitempty"`
	// Started is the answer to a command: the program's pid inside the namespace.
	Started int `json:",omitempty"`
	// Exited is the pid of a child that ended, and Status how.
	Exited int                `json:",omitempty"`
	Status syscall.WaitStatus `json:",omitempty"`
	Error  string             `json:",omitempty"`
}

// nsInitMain is the first process of a containerd's pid and mount namespaces. It executes the commands on its
// standard input, reaps every orphan (containerd's shims outlive containerd and become its children), and ends with
// the end of its input, whereupon the kernel kills all the rest. So nothing is left even when the tests are killed.
func nsInitMain() int {
	out := json.NewEncoder(os.Stdout)
	var config NamespaceConfig
	err := json.Unmarshal([]byte(os.Getenv(nsInitEnv)), &config)
	if err == nil {
		err = nsMount(config)
	}
	if err != nil {
		_ = out.Encode(nsEvent{Error: err.Error()})
		return 1
	}

	// Asked for before the first child, or the first death might be missed.
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, syscall.SIGCHLD)
	commands := make(chan NamespaceCommand)
	go func() {
		defer close(commands)
		in := json.NewDecoder(bufio.NewReader(os.Stdin))
		for {
			var c NamespaceCommand
			if in.Decode(&c) != nil {
				return
			}
			commands <- c
		}
	}()

	_ = out.Encode(nsEvent{Ready: true})
	// One goroutine starts and reaps: a child is reported as started before it is reported dead.
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return 0
			}
			pid, err := nsStart(c)
			if err != nil {
				_ = out.Encode(nsEvent{Error: err.Error()})
				continue
			}
			_ = out.Encode(nsEvent{Started: pid})
		case <-dead:
			for {
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
				if errors.Is(err, syscall.EINTR) {
					continue
				}
				if pid <= 0 || err != nil {
					break
				}
				_ = out.Encode(nsEvent{Exited: pid, Status: status})
			}
		}
	}
}

// nsMount makes the namespace's own mounts. A shim's socket has a fixed place
// below /run, as has runc's state: two containerds must not share them.
func nsMount(config NamespaceConfig) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, dir := range append([]string{"/run"}, config.Tmpfs...) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
		}
	}
	for i, dir := range config.Overlay {
		upper, work := fmt.Sprintf("/run/overlay-%d/upper", i), fmt.Sprintf("/run/overlay-%d/work", i)
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		if err := syscall.Mount("overlay", dir, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", dir, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for i, path := range config.Covers {
		if err := coverFile(path, fmt.Sprintf("/run/covers-%d", i)); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	const empty = "/run/empty"
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		return err
	}
	for _, path := range config.Empty {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := syscall.Mount(empty, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	if config.Shared {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
			return fmt.Errorf("share the mounts: %w", err)
		}
	}
	if config.Loopback {
		return loopbackUp()
	}
	return nil
}

// coverFile puts a copy of a file over it.
func coverFile(path, cover string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cover, b, 0o644); err != nil {
		return err
	}
	return syscall.Mount(cover, path, "", syscall.MS_BIND, "")
}

// loopbackUp brings up the interface lo of this process's network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	return nil
}

func nsStart(c NamespaceCommand) (pid int, err error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer Close(log)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer Close(null)
	pid, err = syscall.ForkExec(c.Argv[0], c.Argv, &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		// A session of its own: a Ctrl-C meant for the tests is not for it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	return pid, nil
}

// Close closes what nothing is lost with.
func Close(c io.Closer) { _ = c.Close() }
