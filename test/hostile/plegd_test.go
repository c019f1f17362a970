//go:build e2e

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// Limits of plegd's resources in every test.
const (
	maxRSS        = 128 << 20 // bytes, at its peak
	maxGoroutines = 200
	maxFDs        = 256
)

// patience is the limit for what takes a second or two on an idle machine.
const patience = time.Minute

// plegd is a `plegd run` whose use of resources is watched.
type plegd struct {
	*lab.Plegd
	t       *testing.T
	web     *http.Client // over TCP
	local   *http.Client // over the control socket
	used    *usage
	stopped bool
}

// options vary a plegd: flags come after the usual ones, and win.
type options struct {
	flags, env []string
	prepare    func(*exec.Cmd)
}

// start starts plegd on a socket, beside a /proc in which nothing is wrong.
func start(t *testing.T, socket string, o options) *plegd {
	t.Helper()
	dir := lab.Dir(t)
	procfs := filepath.Join(dir, "proc")
	write(t, filepath.Join(procfs, "sys/kernel/random/boot_id"), "a-boot\n")
	flags := []string{"--path.procfs=" + procfs, "--path.sysfs=" + dir, "--relist-period=100ms", "--probe-period=200ms"}
	p := &plegd{t: t, Plegd: lab.NewPlegd(t, socket, lab.PlegdOptions{
		Flags: append(flags, o.flags...),
		Env:   append([]string{"GOGC=50", "GOMEMLIMIT=96MiB"}, o.env...), Prepare: o.prepare, // the limit as the unit has it
	})}
	t.Cleanup(p.end)
	p.web, p.local = &http.Client{Timeout: 10 * time.Second}, p.Control(10*time.Second)
	p.local.Transport.(*http.Transport).DisableKeepAlives = false // one connection for all
	t.Cleanup(p.local.CloseIdleConnections)
	p.used = p.watch()
	return p
}

// end stops plegd and checks everything that must hold of every one.
func (p *plegd) end() {
	p.used.stop()
	p.stop()
	p.used.check(p.t)
	checkLog(p.t, p.log())
}

// stop ends plegd by SIGTERM, with exit code 0.
func (p *plegd) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	if !p.Running() {
		p.t.Error("plegd ended by itself")
		return
	}
	if code, _ := p.Stop(); code != 0 {
		p.t.Errorf("plegd ended with %d", code)
	}
}

// log is all that plegd has logged.
func (p *plegd) log() string {
	var b strings.Builder
	for _, l := range p.Log.Since(0) {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

func (p *plegd) get(c *http.Client, path string) (int, string, error) {
	resp, err := c.Get("http://" + p.Address + path)
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
func (p *plegd) await(what string, ok func(*document) bool) (d *document) {
	p.t.Helper()
	lab.Eventually(p.t, patience, what, func() (err error) {
		if !p.Running() {
			p.t.Fatalf("plegd ended while %s was awaited", what)
		}
		if d, err = p.status(); err == nil && !ok(d) {
			err = fmt.Errorf("it is %v", d)
		}
		return err
	})
	return d
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
	out, err := exec.CommandContext(ctx, lab.Binary(t), args...).CombinedOutput()
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
	u := &usage{pid: p.Pid(), quit: make(chan struct{}), done: make(chan struct{})}
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

// maxLogLine is far above any line that plegd has reason to write, in bytes.
const maxLogLine = 64 << 10

// checkLog takes the log apart: each line is one object that plegd wrote, and nothing in
// it is a command to a terminal.
func checkLog(t *testing.T, text string) {
	t.Helper()
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

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
