//go:build e2e

package hostile

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limits of plegd's resources in every test.
const (
	maxRSS        = 128 << 20 // bytes, at its peak
	maxGoroutines = 200
	maxFDs        = 256
)

// patience is how long something is waited for that comes within a second or
// two on a machine that does nothing else.
const patience = time.Minute

// plegd is a `plegd run` with a directory of its own.
type plegd struct {
	t       *testing.T
	cmd     *exec.Cmd
	ended   chan struct{}
	address string
	dir     string
	control string
	log     *logFile
	web     *http.Client // over TCP, where no names may be shown
	local   *http.Client // over the control socket, where they may
	used    *usage
	stopped bool
}

// options vary a plegd.
type options struct {
	// flags come after the usual ones, and win.
	flags []string
	// env is added to its environment.
	env []string
	// binary is run instead of the usual one.
	binary string
	// prepare may change the command before it is started.
	prepare func(*exec.Cmd)
}

// start starts plegd on a socket and waits until it serves HTTP.
func start(t *testing.T, socket string, o options) *plegd {
	t.Helper()
	dir := tempDir(t)
	p := &plegd{t: t, dir: dir, control: filepath.Join(dir, "plegd.sock"), ended: make(chan struct{})}
	p.address = freeAddress(t)
	// What the machine that runs the tests is short of is not the subject.
	procfs := filepath.Join(dir, "proc")
	write(t, filepath.Join(procfs, "sys/kernel/random/boot_id"), "a-boot\n")
	args := []string{
		"run", "--runtime-endpoint=" + socket, "--web.listen-address=" + p.address, "--control-socket=" + p.control,
		"--state-dir=" + filepath.Join(dir, "state"), "--path.procfs=" + procfs, "--path.sysfs=" + dir,
		"--kubelet-healthz-url=", "--log.level=debug", "--relist-period=100ms", "--probe-period=200ms",
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if o.binary == "" {
		o.binary = binary
	}
	p.cmd = exec.Command(o.binary, append(args, o.flags...)...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "PLEGD_") && name != "NOTIFY_SOCKET" && name != "STATE_DIRECTORY" && name != "GOMEMLIMIT" && name != "GOGC" {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	// As the unit has it.
	p.cmd.Env = append(append(p.cmd.Env, "GOMEMLIMIT=96MiB"), o.env...)
	p.log = &logFile{}
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.prepare != nil {
		o.prepare(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its ProcessState
		close(p.ended)
	}()
	t.Cleanup(p.end)
	p.web = &http.Client{Timeout: 10 * time.Second}
	p.local = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", p.control)
		},
	}}
	p.used = p.watch()
	return p
}

// end stops plegd and checks everything that must hold of every one.
func (p *plegd) end() {
	t := p.t
	p.used.stop()
	p.web.CloseIdleConnections()
	p.local.CloseIdleConnections()
	p.stop()
	if t.Failed() {
		t.Logf("plegd's log:\n%s", clip(p.log.String(), 8000))
	}
	p.used.check(t)
	p.log.check(t)
}

// stop ends plegd by SIGTERM, within a few seconds and with exit code 0.
func (p *plegd) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	select {
	case <-p.ended:
		p.t.Errorf("plegd ended by itself: %s", p.cmd.ProcessState)
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("plegd ended with %s", p.cmd.ProcessState)
		}
	case <-time.After(patience):
		p.t.Errorf("plegd did not end %s after SIGTERM", patience)
		_ = p.cmd.Process.Signal(syscall.SIGABRT) // so that the log has its stacks
		<-p.ended
	}
}

func (p *plegd) get(c *http.Client, path string) (int, string, error) {
	resp, err := c.Get("http://" + p.address + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// document is what the tests read of /api/v1/status.
type document struct {
	State, Reason  string
	KubeletMessage string     `json:"kubelet_message"`
	LastSeen       *time.Time `json:"last_seen"`
	LastSeenAge    *float64   `json:"last_seen_age_seconds"`
	Reasons        []struct {
		ID       string
		Evidence []string
	}
	documentFacts `json:"facts"`
}

type documentFacts struct {
	Relist struct {
		Attempts         uint64
		Failures         int
		Failing, Slowest []json.RawMessage
	}
	Runtime *struct{ Name, Version string }
	Pods    struct {
		Running    *int
		Containers map[string]int
	}
}

func (d *document) String() string {
	return fmt.Sprintf("%s %s %v %q", d.State, d.Reason, d.Reasons, d.KubeletMessage)
}

func (p *plegd) status() (*document, error) {
	code, body, err := p.get(p.local, "/api/v1/status")
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		return nil, fmt.Errorf("%d: %w", code, err)
	}
	return &d, nil
}

// await waits until the status is as wanted, and returns it.
func (p *plegd) await(what string, ok func(*document) bool) *document {
	p.t.Helper()
	var d *document
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-p.ended:
			p.t.Fatalf("plegd ended while %s was awaited: %s", what, p.cmd.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if d, err = p.status(); err == nil && ok(d) {
			return d
		}
	}
	p.t.Fatalf("waited %s for %s; it is %v, %v", patience, what, d, err)
	return nil
}

// awaitReason waits for a primary reason; several names mean any of them, ""
// means healthy.
func (p *plegd) awaitReason(reasons ...string) *document {
	p.t.Helper()
	return p.await(strings.Join(reasons, " or "), func(d *document) bool {
		for _, r := range reasons {
			if d.Reason == r && (r != "" || d.State == "healthy") {
				return true
			}
		}
		return false
	})
}

// relists waits until so many more relists have ended.
func (p *plegd) relists(n uint64) *document {
	p.t.Helper()
	var from *document
	return p.await(fmt.Sprintf("%d relists", n), func(d *document) bool {
		if from == nil {
			from = d
		}
		return d.Relist.Attempts > from.Relist.Attempts+n
	})
}

// metric returns the value of a series as /metrics writes it, "" without it.
func (p *plegd) metric(series string) string {
	p.t.Helper()
	_, body, err := p.get(p.web, "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// run runs a short command of plegd.
func run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("plegd %s: %v", args[0], err)
	}
	return string(out)
}

// usage is the most that plegd has used.
type usage struct {
	pid             int
	mu              sync.Mutex
	goroutines, fds int
	rss             int64
	quit, done      chan struct{}
	once            sync.Once
}

func (p *plegd) watch() *usage {
	u := &usage{pid: p.cmd.Process.Pid, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(u.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-u.quit:
				return
			case <-tick.C:
			}
			u.look()
			if n%5 == 0 {
				u.ask(p)
			}
		}
	}()
	return u
}

// look reads what the kernel says of the process.
func (u *usage) look() {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", u.pid))
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.pid))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fds = max(u.fds, len(fds))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			u.rss = max(u.rss, kib<<10)
		}
	}
}

// ask reads plegd's status.
func (u *usage) ask(p *plegd) {
	_, body, err := p.get(p.local, "/metrics")
	if err != nil {
		return
	}
	for line := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			u.mu.Lock()
			u.goroutines = max(u.goroutines, n)
			u.mu.Unlock()
		}
	}
}

func (u *usage) stop() {
	u.once.Do(func() { close(u.quit) })
	<-u.done
	u.look()
}

func (u *usage) check(t *testing.T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t.Logf("at its peak: %.1f MiB resident, %d goroutines, %d descriptors", float64(u.rss)/(1<<20), u.goroutines, u.fds)
	if u.rss == 0 || u.rss > maxRSS {
		t.Errorf("%.1f MiB were resident, want at most %d", float64(u.rss)/(1<<20), maxRSS>>20)
	}
	if u.goroutines > maxGoroutines {
		t.Errorf("%d goroutines, want at most %d", u.goroutines, maxGoroutines)
	}
	if u.fds > maxFDs {
		t.Errorf("%d descriptors, want at most %d", u.fds, maxFDs)
	}
}

// logFile holds what plegd has logged.
type logFile struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// maxLogLine is far above any line that plegd has reason to write, in bytes.
const maxLogLine = 64 << 10

// check takes the log apart: each line is one object that plegd wrote, and there
// is nothing in it that a terminal takes for a command.
func (l *logFile) check(t *testing.T) {
	text := l.String()
	if i := strings.IndexFunc(text, commands); i >= 0 {
		t.Errorf("the log has %+q in it: %q", []rune(text[i:min(len(text), i+4)])[0], clip(text[max(0, i-100):], 200))
	}
	for line := range strings.Lines(text) {
		if len(line) > maxLogLine {
			t.Errorf("a line of the log is %d bytes long: %s", len(line), clip(line, 300))
		}
		var entry struct{ Level, Time, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("a line of the log is no JSON: %v: %s", err, clip(line, 2000))
			return
		}
		if _, err := time.Parse(time.RFC3339Nano, entry.Time); err != nil || entry.Msg == "" || entry.Level == "" || strings.Contains(entry.Msg, forged) {
			t.Errorf("plegd did not write this line: %s", clip(line, 300))
		}
	}
	if strings.Contains(text, "panic") {
		t.Errorf("the log speaks of a panic: %s", clip(text[strings.Index(text, "panic"):], 1000))
	}
}

// commands are what a terminal may act upon, and what hides or turns text round.
func commands(r rune) bool {
	return r < ' ' && r != '\n' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfffd
}

// forged is what the hostile texts of the tests want to see written as if it
// were plegd's.
const forged = "FORGED"

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// tempDir makes a directory whose sockets have a path that fits.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ph-") //nolint:usetesting // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
