//go:build e2e

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Plegd is a `plegd run` of the lab's. Its address, control socket and state
// directory stay the same when it is started again.
type Plegd struct {
	// Address is where it serves HTTP, host:port.
	Address string
	// ControlSocket and StateDir are in a directory of its own.
	ControlSocket, StateDir string
	// Log holds the log of all its starts.
	Log *Log

	t       testing.TB
	argv    []string
	env     []string
	prepare func(*exec.Cmd)
	http    *http.Client
	cmd     *exec.Cmd
	done    <-chan struct{}
}

// PlegdOptions vary a plegd.
type PlegdOptions struct {
	// Flags come after those of the lab, and win over them.
	Flags []string
	// DropCapabilities are taken from it, by their names without cap_.
	DropCapabilities []string
	// Files are put in place of others for it alone, by their paths: it then runs in a mount namespace of its own.
	Files map[string]string
	// Env is added to its environment.
	Env []string
	// Prepare may change the command before it is started.
	Prepare func(*exec.Cmd)
}

// NewPlegd starts plegd on a runtime's socket and waits until it answers.
func NewPlegd(t testing.TB, socket string, options PlegdOptions) *Plegd {
	t.Helper()
	dir := Dir(t)
	p := &Plegd{
		Address:       FreeAddress(t),
		ControlSocket: filepath.Join(dir, "plegd.sock"),
		StateDir:      filepath.Join(dir, "state"),
		t:             t,
		http:          &http.Client{Timeout: 5 * time.Second},
		env:           append(cleanEnv(), options.Env...),
		prepare:       options.Prepare,
	}
	Must(t, os.Mkdir(p.StateDir, 0o755))
	path := filepath.Join(dir, "plegd.log")
	p.Log = newLog(t, path)
	t.Cleanup(func() { KeepLog(t, path, "plegd") })
	p.argv = append(overlaying(t, options.Files), dropping(t, options.DropCapabilities)...)
	p.argv = append(p.argv, Binary(t), "run",
		"--runtime-endpoint="+socket,
		"--web.listen-address="+p.Address,
		"--control-socket="+p.ControlSocket,
		"--state-dir="+p.StateDir,
		// There is none here, and plegd would say so.
		"--kubelet-healthz-url=",
		"--log.format=json",
		"--log.level=debug",
	)
	p.argv = append(p.argv, options.Flags...)
	t.Cleanup(func() {
		p.http.CloseIdleConnections()
		Close(p.Log)
	})
	p.Start()
	return p
}

// Start starts plegd, again after its end, and waits until it answers.
func (p *Plegd) Start() {
	p.t.Helper()
	if p.Running() {
		p.t.Fatal("lab: plegd runs already")
	}
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...)
	p.cmd.Env = p.env
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if p.prepare != nil {
		p.prepare(p.cmd)
	}
	p.done, _ = StartCommand(p.t, p.cmd)
	Eventually(p.t, 10*time.Second, "plegd serves its control socket", func() error {
		if !p.Running() {
			p.t.Fatalf("plegd ended: %s", p.cmd.ProcessState)
		}
		code, body, err := p.GetControl("/-/healthy")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/-/healthy: %d %s", code, body)
		}
		return err
	})
}

// Pid is plegd's process id.
func (p *Plegd) Pid() int { return p.cmd.Process.Pid }

// Running reports whether it has not ended.
func (p *Plegd) Running() bool { return p.done != nil && !IsClosed(p.done) }

// Kill ends plegd by SIGKILL.
func (p *Plegd) Kill() {
	p.t.Helper()
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop ends plegd by SIGTERM and returns its exit code and how long it took.
func (p *Plegd) Stop() (code int, took time.Duration) {
	p.t.Helper()
	start := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("stop plegd: %v", err)
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Fatal("plegd does not end at SIGTERM")
	}
	return p.cmd.ProcessState.ExitCode(), time.Since(start)
}

// FreeAddress returns a loopback address that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range portRange {
		port := firstPort + (os.Getpid()*97+int(nextPort.Add(1)))%portRange
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			Close(l)
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// The ports of tests are below the kernel's range for outgoing connections
// (ip_local_port_range, 32768 to 60999), which could take a port that was just free.
const (
	firstPort = 20300
	portRange = 12000
)

var nextPort atomic.Int64

// cleanEnv is the environment without what would configure plegd.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PLEGD_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") && !strings.HasPrefix(v, "STATE_DIRECTORY=") {
			env = append(env, v)
		}
	}
	return env
}

// Output is what a command of plegd said and how it ended.
type Output struct {
	Code           int
	Stdout, Stderr string
}

// Command is a command of plegd that ends alone.
type Command struct {
	Args []string
}

// Run runs the command to its end, which must come within the limit.
func (c Command) Run(t testing.TB, limit time.Duration) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, Binary(t), c.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = cleanEnv(), &stdout, &stderr, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s, within %s: %v\nstdout: %s\nstderr: %s", cmd, limit, err, stdout.String(), stderr.String())
	}
	return Output{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// dropping returns the start of a command line that drops capabilities for the rest of
// it. setpriv executes the rest in place: the pid stays.
func dropping(t testing.TB, capabilities []string) []string {
	t.Helper()
	if len(capabilities) == 0 {
		return nil
	}
	return []string{LookPath(t, "setpriv"), "--bounding-set=-" + strings.Join(capabilities, ",-")}
}

// overlaying mounts files over others for the rest of the command line.
func overlaying(t testing.TB, files map[string]string) []string {
	t.Helper()
	if len(files) == 0 {
		return nil
	}
	script := ""
	for path, file := range files {
		script += fmt.Sprintf("mount --bind '%s' '%s' && ", file, path)
	}
	return []string{LookPath(t, "unshare"), "--mount", "--propagation=private", "sh", "-c", script + `exec "$@"`, "sh"}
}
