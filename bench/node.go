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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shimName is what this program is started as to be a shim.
const shimName = "containerd-shim-runc-v2"

// nodePods is the most pods of which the node has processes: more than 110 is
// unusual, and thousands do not fit into the machine of a bench.
const nodePods = 110

// node is a node to measure on: a fake runtime and, for each pod, the processes that
// a real one has.
type node struct {
	dir, socket string
	runtime     *process
	processes   []*exec.Cmd
}

func newNode(ctx context.Context, pods, containers int) (*node, error) {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, socket: filepath.Join(dir, "runtime.sock")}
	if err := n.startPods(ctx, min(pods, nodePods), containers); err != nil {
		n.close()
		return nil, err
	}
	if n.runtime, err = startRuntimeChild(ctx, n.socket, pods, containers, 0); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// startPods starts a shim and a process for each container and sandbox: children of
// this process, from which the runtime descends as well. A shim is this program,
// since a real one has several threads too.
func (n *node) startPods(ctx context.Context, pods, containers int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	shim := filepath.Join(n.dir, shimName) // a process is called what it was started as
	if err := os.Symlink(self, shim); err != nil {
		return err
	}
	for i := range pods {
		commands := [][]string{{shim, "-namespace", "k8s.io", "-id", fmt.Sprint("pod", i), "-address", n.socket}}
		for range containers + 1 {
			commands = append(commands, []string{sleep, "86400"})
		}
		for _, args := range commands {
			c := exec.CommandContext(ctx, args[0], args[1:]...)
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := c.Start(); err != nil {
				return err
			}
			n.processes = append(n.processes, c)
		}
	}
	return nil
}

func (n *node) close() {
	if n.runtime != nil {
		n.runtime.close()
	}
	for _, c := range n.processes {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	_ = os.RemoveAll(n.dir)
}

// daemon is a plegd run.
type daemon struct {
	cmd    *exec.Cmd
	url    string
	client *http.Client
}

// startDaemon starts one as its unit does (deploy/systemd/plegd.service).
func startDaemon(ctx context.Context, binary, socket string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "plegd-bench-state-")
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &daemon{url: "http://" + address + "/metrics", client: &http.Client{Timeout: 10 * time.Second}}
	d.cmd = exec.CommandContext(ctx, binary, "run", "--runtime-endpoint", "unix://"+socket, "--state-dir", dir,
		"--control-socket", filepath.Join(dir, "control.sock"), "--web.listen-address", address)
	d.cmd.Env = append(os.Environ(), "GOMEMLIMIT=96MiB")
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startAsUnit(d.cmd); err != nil {
		return nil, fmt.Errorf("start the daemon (make build): %w", err)
	}
	return d, nil
}

// startAsUnit starts a process with the timer slack that the unit has: the thread
// that starts it hands on its own.
func startAsUnit(cmd *exec.Cmd) error {
	const unitSlack = 5 * time.Millisecond // TimerSlackNSec=
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(unitSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: what the thread had at first
	return cmd.Start()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	_ = os.RemoveAll(filepath.Dir(d.cmd.Args[slices.Index(d.cmd.Args, "--control-socket")+1]))
}

// scrape asks as Prometheus 3 does, and returns the number of series.
func scrape(ctx context.Context, client *http.Client, url string) (int, error) {
	text, err := get(ctx, client, url, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
	series := 0
	for line := range bytes.Lines(text) {
		if line[0] != '#' {
			series++
		}
	}
	return series, err
}

// get returns the body of an answer; an error where it is not 200.
func get(ctx context.Context, client *http.Client, url, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req) // the transport asks for gzip
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return body, err
}

// scrapeCost is the CPU time of one scrape, the median over rounds of scrapes one
// after another, less what the daemon spends without any (idle, of each second).
func (d *daemon) scrapeCost(ctx context.Context, idle float64) (time.Duration, error) {
	const rounds, scrapes = 9, 50
	var costs []time.Duration
	for range rounds {
		start, before := time.Now(), cpuOf(d.pid())
		for range scrapes {
			if _, err := scrape(ctx, d.client, d.url); err != nil {
				return 0, err
			}
		}
		costs = append(costs, (cpuOf(d.pid())-before-time.Duration(idle*float64(time.Since(start))))/scrapes)
	}
	slices.Sort(costs)
	return costs[rounds/2], nil
}

// cpuOf is the CPU time of a process, of all its threads, ended ones too; 0 where
// there is none.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	// The clock of a process's CPU time, to the nanosecond: clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// status reads what of the daemon's status to has.
func (d *daemon) status(ctx context.Context, to any) error {
	body, err := get(ctx, d.client, strings.Replace(d.url, "/metrics", "/api/v1/status", 1), "application/json")
	if err != nil {
		return err
	}
	return json.Unmarshal(body, to)
}

// reason returns the state and the primary reason that the daemon names.
func (d *daemon) reason(ctx context.Context) (string, error) {
	var status struct{ State, Reason string }
	err := d.status(ctx, &status)
	return strings.TrimSpace(status.State + " " + status.Reason), err
}

// kernel is the kernel's version.
func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease") // without it there is none to show
	version, _, _ := strings.Cut(strings.TrimSpace(string(b)), "-")
	return version
}

// settledRelists is how many relists the daemon must have made.
const settledRelists = 5

// settled waits until the daemon has made its first relists.
func (d *daemon) settled(ctx context.Context) error {
	for {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		if n, err := d.relists(ctx); err == nil && n > settledRelists {
			return nil
		}
	}
}

// relists is how many relists the daemon has made.
func (d *daemon) relists(ctx context.Context) (int, error) {
	var status struct {
		Facts struct {
			Relist struct{ Attempts int }
		}
	}
	err := d.status(ctx, &status)
	return status.Facts.Relist.Attempts, err
}
