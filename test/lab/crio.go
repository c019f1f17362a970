//go:build e2e

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// CRIO is a process that serves a fake runtime, and behaves as CRI-O does where
// containerd behaves otherwise: it speaks second, listens before it restores its
// state, burns a core when it has no descriptor left, waits for the storage's
// lock before it listens, has conmons, and calls the network ready for ever once
// it has had a CNI configuration.
type CRIO struct {
	Socket string
	// Lock is the file that it locks, Restoring one that holds it up as long as
	// it is there, CNIConfig the configuration of its network. While Locking is
	// there it takes the lock again, as for each pod that it starts.
	Lock, Restoring, Locking, CNIConfig string

	t      testing.TB
	config crioConfig
	cmd    *exec.Cmd
	ended  chan struct{}
}

// crioEnv holds a crioConfig in the environment of its process, conmonEnv is set
// in that of a conmon; both are unset everywhere else.
const (
	crioEnv   = "PLEGD_LAB_CRIO"
	conmonEnv = "PLEGD_LAB_CONMON"
)

type crioConfig struct {
	Socket, Lock, Restoring, Locking, CNIConfig string
	OpenFiles                                   uint64
	Conmons                                     int
}

// NewCRIO makes one and starts it. openFiles is its limit of open files, 0 for
// the one of the test; conmons is how many it has.
func NewCRIO(t testing.TB, openFiles uint64, conmons int) *CRIO {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("lab: TestMain must call lab.Main")
	}
	dir := Dir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A process is called what it was started as.
	for _, name := range []string{"crio", "conmon"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := &CRIO{
		t: t, Socket: filepath.Join(dir, "crio.sock"), Lock: filepath.Join(dir, "storage.lock"),
		Restoring: filepath.Join(dir, "restoring"), Locking: filepath.Join(dir, "locking"), CNIConfig: filepath.Join(dir, "10-crio.conflist"),
	}
	c.config = crioConfig{Socket: c.Socket, Lock: c.Lock, Restoring: c.Restoring, Locking: c.Locking, CNIConfig: c.CNIConfig, OpenFiles: openFiles, Conmons: conmons}
	if err := os.WriteFile(c.CNIConfig, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	c.Launch()
	c.AwaitAnswer()
	return c
}

// Launch starts it and does not wait until it answers.
func (c *CRIO) Launch() {
	c.t.Helper()
	config, err := json.Marshal(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(filepath.Join(filepath.Dir(c.Socket), "crio"))
	c.cmd.Env = append(os.Environ(), crioEnv+"="+string(config))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended, cmd := make(chan struct{}), c.cmd
	c.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

// AwaitAnswer waits until it answers.
func (c *CRIO) AwaitAnswer() {
	c.t.Helper()
	Eventually(c.t, 20*time.Second, "the fake CRI-O answers", func() error { return VersionAnswers(c.Socket) })
}

// Kill ends it, and its conmons with it; its socket's file goes as at a clean end.
func (c *CRIO) Kill() {
	if c.cmd == nil {
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.ended
	_ = os.Remove(c.Socket)
	c.cmd = nil
}

// Pid is its process id.
func (c *CRIO) Pid() int { return c.cmd.Process.Pid }

// Conmon is the pid of one of its conmons.
func (c *CRIO) Conmon() int {
	c.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.Pid())) // of any thread
	for _, task := range tasks {
		var pid int
		if b, err := os.ReadFile(task); err == nil {
			if _, err := fmt.Sscan(string(b), &pid); err == nil {
				return pid
			}
		}
	}
	c.t.Fatalf("lab: the fake CRI-O has no conmon: %v", err)
	return 0
}

// HoldLock has another process of the test's, this one, hold the storage's lock
// until it is given back.
func (c *CRIO) HoldLock() (release func()) {
	c.t.Helper()
	f, err := os.OpenFile(c.Lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return sync.OnceFunc(func() { closeQuietly(f) })
}

// conmonMain is a conmon's process: it waits.
func conmonMain() int {
	time.Sleep(time.Hour)
	return 0
}

// crioMain is its process.
func crioMain() int {
	var config crioConfig
	err := json.Unmarshal([]byte(os.Getenv(crioEnv)), &config)
	if err == nil {
		err = crio(config)
	}
	fmt.Fprintln(os.Stderr, "crio:", err)
	return 1
}

func crio(config crioConfig) error {
	lock, err := os.OpenFile(config.Lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err == nil {
			break
		} else if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	for i := range config.Conmons {
		id := fmt.Sprintf("%064x", i)
		cmd := exec.Command(filepath.Join(filepath.Dir(config.Socket), "conmon"),
			"-c", id, "--exit-dir", "/var/run/crio/exits", "-n", fmt.Sprintf("k8s_app_pod_lab_%s_0", id))
		cmd.Env = []string{conmonEnv + "=1"}
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { _ = cmd.Wait() }()
	}
	rt := fakeruntime.New(fakeruntime.Options{CRIO: true})
	rt.FillPods(5, 1)
	rt.Start()
	latchNetwork(rt, config.CNIConfig)
	go lockWhileAsked(lock, config.Locking)

	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: config.Socket})
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		return err
	}
	for { // the state is restored only then
		if _, err := os.Stat(config.Restoring); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if n := config.OpenFiles; n > 0 {
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}); err != nil {
			return err
		}
	}
	for {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			continue // at once, as CRI-O does
		}
		go serveCRIO(rt, conn)
	}
}

// lockWhileAsked takes the storage's lock again and again while the file asked is
// there.
func lockWhileAsked(lock *os.File, asked string) {
	for {
		if _, err := os.Stat(asked); err == nil {
			_ = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
			_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// latchNetwork calls the network ready once it has a configuration; what becomes
// of that then CRI-O does not see.
func latchNetwork(rt *fakeruntime.Runtime, config string) {
	rt.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady",
		"Network plugin returns error: No CNI configuration file in /etc/cni/net.d/. Has your network provider started?")
	go func() {
		for {
			if _, err := os.Stat(config); err == nil {
				rt.SetCondition(runtimeapi.NetworkReady, true, "", "")
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

// serveCRIO serves one connection, without a descriptor beside its own.
func serveCRIO(rt *fakeruntime.Runtime, fd int) {
	outside := os.NewFile(uintptr(fd), "connection")
	inside, err := rt.DialContext(context.Background(), "")
	if err != nil {
		closeQuietly(outside)
		return
	}
	end := sync.OnceFunc(func() {
		closeQuietly(outside)
		closeQuietly(inside)
	})
	go func() {
		defer end()
		_, _ = io.Copy(struct{ io.Writer }{inside}, struct{ io.Reader }{outside})
	}()
	defer end()
	_, _ = io.Copy(struct{ io.Writer }{outside}, struct{ io.Reader }{inside})
}

// FakeDocker is a Docker daemon's socket, in the test's own process, that does
// or does not accept.
type FakeDocker struct {
	Socket string

	mu     sync.Mutex
	stuck  bool
	change *sync.Cond
}

// NewFakeDocker serves /_ping until the test ends.
func NewFakeDocker(t testing.TB) *FakeDocker {
	t.Helper()
	d := &FakeDocker{Socket: filepath.Join(Dir(t), "docker.sock")}
	d.change = sync.NewCond(&d.mu)
	l, err := net.Listen("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Accept(true)
		closeQuietly(l)
	})
	go func() {
		for {
			d.mu.Lock()
			for d.stuck {
				d.change.Wait()
			}
			d.mu.Unlock()
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer closeQuietly(c)
				if d.isStuck() { // the one that Accept was waiting for
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK")
			}()
		}
	}()
	return d
}

func (d *FakeDocker) isStuck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stuck
}

// Accept makes it accept, or not.
func (d *FakeDocker) Accept(yes bool) {
	d.mu.Lock()
	d.stuck = !yes
	d.mu.Unlock()
	d.change.Broadcast()
}
