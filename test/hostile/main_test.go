//go:build e2e

package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) {
	if os.Getenv(denyLinksEnv) != "" {
		panic(denyLinksMain()) // returns only where it fails
	}
	code := lab.Main(m)
	printCounts()
	os.Exit(code)
}

// Limits of plegd's resources in every test.
const (
	maxRSS        = 128 << 20 // bytes, at its peak
	maxGoroutines = 300       // two for each of the 112 connections that the web address keeps, and plegd's own
	maxFDs        = 256
	maxLogLine    = 64 << 10 // bytes, far above any line that plegd has reason to write
)

// patience is the limit for what takes a second or two on an idle machine.
const patience = time.Minute

// serve serves a fake runtime of a few pods at a path of its own.
func serve(t *testing.T, o fakeruntime.Options, pods int) (*fakeruntime.Runtime, string) {
	t.Helper()
	path := filepath.Join(lab.Dir(t), "runtime.sock")
	return serveAt(t, path, o, pods), path
}

func serveAt(t *testing.T, path string, o fakeruntime.Options, pods int) *fakeruntime.Runtime {
	t.Helper()
	rt := fakeruntime.New(o)
	rt.FillPods(pods, 2)
	lab.Must(t, rt.Listen(path))
	t.Cleanup(rt.Stop)
	return rt
}

// plegd is a `plegd run` whose use of resources is watched.
type plegd struct {
	*lab.Plegd
	t       *testing.T
	local   *http.Client // over the control socket, one connection for all requests
	stopped bool
	peak    [2]int // of goroutines and descriptors
	unwatch func() // ends the sampling of them
}

// start starts plegd on a socket, beside a /proc in which nothing is wrong. The flags in
// the options come after the usual ones, and win.
func start(t *testing.T, socket string, o lab.PlegdOptions) *plegd {
	t.Helper()
	dir := lab.Dir(t)
	procfs := filepath.Join(dir, "proc")
	write(t, filepath.Join(procfs, "sys/kernel/random/boot_id"), "a-boot\n")
	o.Flags = append([]string{"--path.procfs=" + procfs, "--path.sysfs=" + dir, "--relist-period=100ms", "--probe-period=200ms"}, o.Flags...)
	o.Env = append([]string{"GOMAXPROCS=1", "GOGC=75", "GOMEMLIMIT=96MiB"}, o.Env...) // as in the unit
	p := &plegd{t: t, Plegd: lab.NewPlegd(t, socket, o)}
	p.local = p.held()
	client := p.held()
	p.unwatch = lab.Every(t, 500*time.Millisecond, func() {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
		_, body, _ := lab.Get(client, "http://plegd/metrics")
		p.peak = [2]int{max(p.peak[0], number(body, `\ngo_goroutines (\d+)`)), max(p.peak[1], len(fds))}
	})
	t.Cleanup(p.stop)
	return p
}

// held is a client for one request at a time, whose connection is held: without a
// descriptor plegd accepts no other.
func (p *plegd) held() *http.Client {
	c := p.Control(patience)
	c.Transport.(*http.Transport).DisableKeepAlives = false
	p.t.Cleanup(c.CloseIdleConnections)
	return c
}

// stop ends plegd by SIGTERM and checks what must hold of every one.
func (p *plegd) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	p.unwatch()
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	rss := number(string(status), `\nVmHWM:\s+(\d+) kB`) << 10 // at its peak
	if !p.Running() {
		p.t.Error("plegd ended by itself")
	} else if code, _ := p.Stop(); code != 0 {
		p.t.Errorf("plegd ended with %d", code)
	}
	p.t.Logf("at its peak: %.1f MiB resident, %d goroutines, %d descriptors", float64(rss)/(1<<20), p.peak[0], p.peak[1])
	if rss == 0 || rss > maxRSS || p.peak[0] > maxGoroutines || p.peak[1] > maxFDs {
		p.t.Errorf("more than %d MiB, %d goroutines or %d descriptors", maxRSS>>20, maxGoroutines, maxFDs)
	}
	checkLog(p.t, p.log())
}

// number is the number that a pattern finds in a text, 0 where there is none.
func number(text, pattern string) int {
	m := regexp.MustCompile(pattern).FindStringSubmatch("\n" + text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// log is all that plegd has logged.
func (p *plegd) log() string {
	var b strings.Builder
	for _, l := range p.Log.Since(0) {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// await waits until the status is as wanted, and returns it.
func (p *plegd) await(what string, ok func(lab.Status) bool) (s lab.Status) {
	p.t.Helper()
	lab.Eventually(p.t, patience, what, func() (err error) {
		if !p.Running() {
			p.t.Fatalf("plegd ended while %s was awaited", what)
		}
		if s, err = lab.GetStatus(p.local, "http://plegd"); err == nil && !ok(s) {
			err = fmt.Errorf("it is %s", describe(s))
		}
		return err
	})
	return s
}

func describe(s lab.Status) string {
	return fmt.Sprintf("%s %s %v %q", s.State, s.Reason, s.Reasons, s.KubeletMessage)
}

// awaitReason waits for a primary reason; several names mean any of them, none or ""
// means healthy.
func (p *plegd) awaitReason(reasons ...string) lab.Status {
	p.t.Helper()
	return p.await("the reason "+strings.Join(reasons, " or "), func(s lab.Status) bool {
		for _, r := range reasons {
			if r != "" && s.Reason == r {
				return true
			}
		}
		return s.State == "healthy" && strings.Join(reasons, "") == ""
	})
}

// relists waits until so many more relists have ended.
func (p *plegd) relists(n uint64) lab.Status {
	p.t.Helper()
	var goal uint64
	return p.await(fmt.Sprintf("%d relists", n), func(s lab.Status) bool {
		if goal == 0 {
			goal = s.Relist.Attempts + n
		}
		return s.Relist.Attempts > goal
	})
}

// lists waits until both lists have been answered so many times more, in relists or beside one
// that inspects.
func (p *plegd) lists(n int) (s lab.Status) {
	p.t.Helper()
	for range n {
		var last *time.Time
		s = p.await("a list", func(s lab.Status) bool {
			if last == nil && s.LastSeen != nil {
				last = s.LastSeen
			}
			return last != nil && s.LastSeen.After(*last)
		})
	}
	return s
}

// awaitMetric waits for the value of a series, as /metrics writes it.
func (p *plegd) awaitMetric(series, want string) {
	p.t.Helper()
	p.await(series+" "+want, func(lab.Status) bool {
		_, body, err := p.Get("/metrics")
		return err == nil && strings.Contains(body, "\n"+series+" "+want+"\n")
	})
}

// worksOn checks that monitoring continues: relists do, the verdict is right, and the
// next fault is named.
func (p *plegd) worksOn(rt *fakeruntime.Runtime) {
	p.t.Helper()
	p.awaitReason()
	p.relists(5)
	lab.Must(p.t, rt.SetFailpoints("ListContainers=hang"))
	p.awaitReason("RuntimeListStall")
	lab.Must(p.t, rt.SetFailpoints(""))
	p.awaitReason()
}

// run runs a short command of plegd.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out := lab.Command{Args: args}.Run(t, patience)
	return out.Stdout + out.Stderr
}

// checkLog requires that each line is one object that plegd wrote, and that nothing in it
// is a command to a terminal.
func checkLog(t *testing.T, text string) {
	t.Helper()
	noCommands(t, "the log", text)
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
	if i := strings.Index(text, "panic"); i >= 0 {
		t.Errorf("the log has a panic: %s", clip(text[i:], 1000))
	}
}

// noCommands looks for characters that a terminal may act upon, or that hide or turn text.
func noCommands(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, isCommand); i >= 0 {
		t.Errorf("%s has %+q in it: %q", what, []rune(text[i:])[0], clip(text[max(0, i-60):], 120))
	}
}

func isCommand(r rune) bool {
	return r < ' ' && r != '\n' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfffd
}

// forged is in the hostile texts, which want to be taken for plegd's own.
const forged = "FORGED"

func clip(s string, n int) string { return s[:min(len(s), n)] }

func write(t *testing.T, path, text string) {
	t.Helper()
	lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	lab.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// prepared are options with a changed command.
func prepared(change func(*exec.Cmd), flags ...string) lab.PlegdOptions {
	return lab.PlegdOptions{Flags: flags, Prepare: change}
}
