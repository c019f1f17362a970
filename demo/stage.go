package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// demo is the stage: the children, where they live, and what was said last.
type demo struct {
	binary, dir, url string
	began            time.Time
	children         []*child
	// The verdict printed last, whether with a countdown, and when.
	last      string
	countdown bool
	lastTick  time.Time
	// keeps is the reason that may not change now, "" for none.
	keeps string
}

// child is a plegd that the demo started.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// status is what the demo reads of /api/v1/status.
type status struct {
	State          string   `json:"state"`
	Reason         string   `json:"reason"`
	NotReadyIn     *float64 `json:"not_ready_in_seconds"`
	KubeletMessage string   `json:"kubelet_message"`
	Kubelet        struct {
		RulesOK   bool `json:"rules_ok"`
		NodeReady bool `json:"node_ready"`
	} `json:"kubelet"`
	Reasons []struct {
		ID       string   `json:"id"`
		Evidence []string `json:"evidence"`
	} `json:"reasons"`
	Facts struct {
		Pods *struct {
			Running int `json:"running"`
		} `json:"pods"`
	} `json:"facts"`
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("\n%4.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) note(format string, args ...any) {
	fmt.Printf("%4.1f s    %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// freeAddress finds a free port on the loopback address.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start runs plegd in the background, in a process group of its own so that
// ctrl-c reaches it by way of the demo only.
func (d *demo) start(ctx context.Context, args ...string) error {
	c := &child{name: "plegd " + args[0], log: filepath.Join(d.dir, args[0]+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has it now
	c.cmd = exec.CommandContext(ctx, d.binary, args...)
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 3 * time.Second
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in its ProcessState
		close(c.done)
	}()
	d.children = append(d.children, c)
	return nil
}

// alive fails when a child has ended, and says what it said last.
func (d *demo) alive() error {
	for _, c := range d.children {
		select {
		case <-c.done:
			text, _ := os.ReadFile(c.log)
			return fmt.Errorf("%s ended (%s); its log:\n%s", c.name, c.cmd.ProcessState, text)
		default:
		}
	}
	return nil
}

// close ends the children, the last one first, and removes the directory.
func (d *demo) close() {
	for i := len(d.children) - 1; i >= 0; i-- {
		c := d.children[i]
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(3 * time.Second):
			fmt.Fprintf(os.Stderr, "demo: %s did not end within 3 s of SIGTERM: killed\n", c.name)
			_ = c.cmd.Process.Kill()
			<-c.done
		}
	}
	_ = os.RemoveAll(d.dir)
}

func (d *demo) waitSocket(ctx context.Context, path string) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if conn, err := net.Dial("unix", path); err == nil {
			return conn.Close()
		}
		if err := d.pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("plegd simulate did not listen within 10 s")
}

// pause waits, and fails when the demo is over or a child has ended.
func (d *demo) pause(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(t):
		return d.alive()
	}
}

// waitStatus follows the verdict, printing it whenever it changes and every few
// seconds of a countdown, until ok.
func (d *demo) waitStatus(ctx context.Context, limit time.Duration, what string, ok func(*status) bool) (*status, error) {
	var last error
	for end := time.Now().Add(limit); time.Now().Before(end); {
		s, err := d.status(ctx)
		if last = err; err == nil {
			d.showVerdict(s)
			if d.keeps != "" && s.Reason != d.keeps {
				return nil, fmt.Errorf("the fault lasts, and the verdict is no longer %s, but %s", d.keeps, d.last)
			}
			if ok(s) {
				return s, nil
			}
		}
		if err := d.pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if last != nil {
		return nil, fmt.Errorf("waited %s for %s: %w", limit, what, last)
	}
	return nil, fmt.Errorf("waited %s for %s; the verdict is: %s", limit, what, d.last)
}

func (d *demo) showVerdict(s *status) {
	v := s.State
	if s.Reason != "" {
		v += ", " + s.Reason
	}
	countdown := s.NotReadyIn != nil && *s.NotReadyIn > 0
	if v == d.last && (!countdown || d.countdown && time.Since(d.lastTick) < 2500*time.Millisecond) {
		return
	}
	changed := v != d.last
	d.last, d.countdown, d.lastTick = v, countdown, time.Now()
	line := "verdict: " + v
	if countdown {
		line += fmt.Sprintf("; the node turns NotReady in %.1f s", *s.NotReadyIn)
	}
	d.note("%s", line)
	if changed && len(s.Reasons) > 0 {
		for _, e := range s.Reasons[0].Evidence {
			d.note("  %s", e)
		}
	}
}

func (d *demo) get(ctx context.Context, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

func (d *demo) status(ctx context.Context) (*status, error) {
	code, body, err := d.get(ctx, "/api/v1/status")
	if err != nil {
		return nil, err
	}
	var s status
	if code != http.StatusOK {
		return nil, fmt.Errorf("/api/v1/status answers %d", code)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("read /api/v1/status: %w", err)
	}
	return &s, nil
}

// telling are the lines of /metrics that the demo prints.
var telling = regexp.MustCompile(`^(pleg_last_seen_age_seconds |pleg_not_ready_in_seconds |pleg_relist_inflight_seconds\{.* [^0]|pleg_relist_inflight_seconds\{.* 0\.|pleg_running_pods |(pleg_verdict|pleg_reason|pleg_primary_reason)\{.* 1$)`)

func (d *demo) showMetrics(ctx context.Context) error {
	code, body, err := d.get(ctx, "/metrics")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("scrape /metrics: %d: %w", code, err)
	}
	n := 0
	for sc := bufio.NewScanner(bytes.NewReader(body)); sc.Scan(); {
		if telling.MatchString(sc.Text()) {
			fmt.Printf("          | %s\n", sc.Text())
			n++
		}
	}
	if n < 2 {
		return errors.New("/metrics lacks pleg_last_seen_age_seconds or pleg_verdict")
	}
	return nil
}

// healthz checks /healthz, the node's health for a load balancer or a script.
func (d *demo) healthz(ctx context.Context, want int) error {
	code, body, err := d.get(ctx, "/healthz")
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	d.note("GET /healthz: %d %s", code, line)
	if code != want {
		return fmt.Errorf("/healthz answers %d instead of %d", code, want)
	}
	return nil
}

// tool runs a short plegd command and returns what it printed.
func (d *demo) tool(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.binary, args...).CombinedOutput()
	return string(out), err
}

func (d *demo) failpoints(ctx context.Context, socket, spec string) error {
	d.note("$ plegd simulate failpoints --socket runtime.sock '%s'", spec)
	if out, err := d.tool(ctx, "simulate", "failpoints", "--socket", socket, spec); err != nil {
		return fmt.Errorf("plegd simulate failpoints %s: %w: %s", spec, err, out)
	}
	return nil
}

// showStatus prints plegd status, whose exit code is the verdict.
func (d *demo) showStatus(ctx context.Context, socket string, want int) error {
	out, err := d.tool(ctx, "status", "--control-socket", socket)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		return fmt.Errorf("plegd status: %w", err)
	}
	for line := range strings.Lines(out) {
		fmt.Printf("          | %s\n", strings.TrimRight(line, "\n"))
	}
	if code != want {
		return fmt.Errorf("plegd status exits with %d instead of %d", code, want)
	}
	return nil
}

func (d *demo) showLog() {
	const width = 160
	text, _ := os.ReadFile(filepath.Join(d.dir, "run.log"))
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  ")
		if len(line) > width {
			line = line[:width] + " ..."
		}
		fmt.Printf("          | %s\n", line)
	}
}
