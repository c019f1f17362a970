package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shimName is the name under which this program runs as a shim.
const shimName = "containerd-shim-runc-v2"

// nodePods is the most pods of which the node has processes: thousands do not fit into the machine of a bench.
const nodePods = 110

// node is a simulated runtime and, for each pod, the processes of a real one.
type node struct {
	dir, socket string
	processes   []*exec.Cmd
}

func newNode(ctx context.Context, binary string, pods int) (*node, error) {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, socket: filepath.Join(dir, "runtime.sock")}
	if err := n.startPods(ctx, min(pods, nodePods)); err != nil {
		n.close()
		return nil, err
	}
	err = n.start(exec.CommandContext(ctx, binary, "simulate", "--socket", n.socket, "--pods", fmt.Sprint(pods), "--containers", fmt.Sprint(containers)))
	for err == nil {
		if _, err = os.Stat(n.socket); err == nil {
			return n, nil
		}
		err = wait(ctx, 100*time.Millisecond)
	}
	n.close()
	return nil, err
}

func (n *node) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s (make build): %w", cmd.Path, err)
	}
	n.processes = append(n.processes, cmd)
	return nil
}

// startSelf starts this program with other arguments and returns its pid.
func (n *node) startSelf(ctx context.Context, args ...string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	if err := n.start(cmd); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// startPods starts a shim and a process for each container and sandbox. A shim is this
// program, since a real one has several threads too.
func (n *node) startPods(ctx context.Context, pods int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	shim := filepath.Join(n.dir, shimName) // The kernel names a process after its path.
	if err := os.Symlink(self, shim); err != nil {
		return err
	}
	for i := range pods {
		if err := n.start(exec.CommandContext(ctx, shim, "-namespace", "k8s.io", "-id", fmt.Sprint("pod", i), "-address", n.socket)); err != nil {
			return err
		}
		for range containers + 1 {
			if err := n.start(exec.CommandContext(ctx, "sleep", "86400")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *node) close() {
	for _, c := range slices.Backward(n.processes) {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	_ = os.RemoveAll(n.dir)
}

// daemon is a plegd run.
type daemon struct {
	pid int
	url string
}

// startDaemon starts one as its unit does (deploy/systemd/plegd.service).
func (n *node) startDaemon(ctx context.Context, binary string) (*daemon, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(ctx, binary, "run", "--runtime-endpoint", "unix://"+n.socket, "--state-dir", filepath.Join(n.dir, "state"),
		"--control-socket", filepath.Join(n.dir, "control.sock"), "--web.listen-address", address)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=75", "GOMEMLIMIT=96MiB")
	// TimerSlackNSec= of the unit: a child inherits the slack of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(5*time.Millisecond), 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0 restores the default.
	if err := n.start(cmd); err != nil {
		return nil, err
	}
	return &daemon{cmd.Process.Pid, "http://" + address}, nil
}

// get returns the body of an answer.
func (d *daemon) get(ctx context.Context, path, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req) // The transport asks for gzip.
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", path, resp.Status)
	}
	return body, err
}

// scrape asks as Prometheus does, and returns the number of series.
func (d *daemon) scrape(ctx context.Context) (int, error) {
	text, err := d.get(ctx, "/metrics", "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3")
	series := 0
	for line := range bytes.Lines(text) {
		if line[0] != '#' {
			series++
		}
	}
	return series, err
}

// scrapeCost is the CPU time of one scrape, the median over rounds, less what the daemon
// spends without any (idle, of each second).
func (d *daemon) scrapeCost(ctx context.Context, idle float64) (time.Duration, error) {
	const rounds, scrapes = 9, 50
	var costs []time.Duration
	for range rounds {
		start, before := time.Now(), cpuOf(d.pid)
		for range scrapes {
			if _, err := d.scrape(ctx); err != nil {
				return 0, err
			}
		}
		costs = append(costs, (cpuOf(d.pid)-before-time.Duration(idle*float64(time.Since(start))))/scrapes)
	}
	slices.Sort(costs)
	return costs[rounds/2], nil
}

// relists is how many relists the daemon has attempted.
func (d *daemon) relists(ctx context.Context) (int, error) {
	body, err := d.get(ctx, "/api/v1/status", "application/json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Facts struct {
			Relist struct{ Attempts int }
		}
	}
	err = json.Unmarshal(body, &status)
	return status.Facts.Relist.Attempts, err
}

// settled waits for the first relists, which inspect every pod, and until the heap and
// the search for processes have settled.
func (d *daemon) settled(ctx context.Context) error {
	for {
		if n, err := d.relists(ctx); err == nil && n > 5 {
			return wait(ctx, 15*time.Second)
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// cpuOf is the CPU time of all threads of a process; 0 if it is gone.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	// The CPU clock of a process: clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
