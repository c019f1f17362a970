//go:build e2e

package chain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/ledger"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/waiting"
)

// The runtime of these tests listens at the first path, accepts two connections and sends what its
// argument says on the last.
const (
	serves = `socket(L,AF_UNIX,SOCK_STREAM,0); bind(L,sockaddr_un($ARGV[0])) or die; listen(L,5); print "ready\n"; accept(C,L); `
	sends  = serves + `syswrite(C,"x" x %LEN%); sleep 1000`
)

// obligations are two processes each, of which the first is the runtime. later is the time until
// the pass that counts, reason its finding, at the end of a chain to the second.
var obligations = []struct {
	name, runtime, peer string
	nri                 bool // the runtime's socket is not the one that calls come by
	stops               bool
	late                bool // a call is late
	known               bool // it was so before the ledger
	restarts            bool // another ledger begins within it
	later               time.Duration
	reason              string
}{
	{name: "a stopped plugin", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		stops: true, later: 11 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a plugin that was stopped before", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		stops: true, known: true, later: 11 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a plugin that is stopped for a moment", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		stops: true, later: 9 * time.Second},
	{name: "a plugin that does not read", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		later: 31 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a plugin that does not read, over a restart of plegd", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		restarts: true, later: 31 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a peer that never reads", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, nri: true,
		known: true, later: time.Hour},
	{name: "a stopped client of events", runtime: strings.ReplaceAll(sends, "%LEN%", "65536"), peer: connects + sleeps,
		stops: true, late: true, later: 11 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a stopped client of events for which nothing waits", runtime: strings.ReplaceAll(sends, "%LEN%", "65536"), peer: connects + sleeps,
		stops: true, later: time.Hour},
	{name: "a stopped client", runtime: strings.ReplaceAll(sends, "%LEN%", "100"), peer: connects + sleeps, stops: true, later: time.Hour},
	{name: "a server that does not accept", runtime: strings.Replace(connects, "[0]", "[1]", 1) + sleeps, peer: strings.Replace(listens, "[0]", "[1]", 1) + "sleep 1000",
		stops: true, later: 11 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a stopped TCP server that has not accepted", runtime: connectsTCP + `syswrite(S,"x"); ` + sleeps, peer: listensTCP + "sleep 1000",
		stops: true, later: 11 * time.Second, reason: "RuntimePeerStuck"},
	{name: "a TCP server that does not read", runtime: connectsTCP + `syswrite(S,"x"); ` + sleeps, peer: listensTCP + "accept(C,S); sleep 1000",
		later: 31 * time.Second, reason: "RuntimePeerStuck"},
}

func TestObligations(t *testing.T) {
	for _, tt := range obligations {
		t.Run(tt.name, func(t *testing.T) {
			paths := []string{socketPath(t), socketPath(t), strconv.Itoa(freePort(t))}
			b := book{pid: os.Getpid(), now: time.Now(), sockets: paths[:1], late: tt.late}
			if tt.nri {
				b.sockets = nil
			}
			l := b.ledger()
			if !tt.known {
				l.Pass(t.Context())
			}
			var runtime, peer *waiting.Process
			if strings.Contains(tt.peer, "listen") {
				peer = waiting.Perl(t, tt.peer, paths...)
				runtime = waiting.Perl(t, tt.runtime, paths...).Asleep(t)
			} else {
				runtime = waiting.Perl(t, tt.runtime, paths...)
				peer = waiting.Perl(t, tt.peer, paths...)
				runtime.Asleep(t)
			}
			if tt.stops {
				peer.Stop(t)
			}
			b.pid = runtime.PID
			l.Pass(t.Context())
			b.now = b.now.Add(tt.later)
			if tt.restarts {
				l.Pass(t.Context())
				b.begun = l.Ages()
				l = b.ledger()
			}
			checkFinding(t, l.Pass(t.Context()).Findings, tt.reason, peer.PID)
		})
	}
}

// book is the input of a ledger.
type book struct {
	pid   int
	now   time.Time
	begun map[string]time.Time
	// sockets are those at which the runtime answers calls.
	sockets []string
	late    bool
}

func (b *book) ledger() *ledger.Ledger {
	table := proc.NewTable("/proc")
	return ledger.New(ledger.Options{
		Table: table, Shims: family.NewShims(table), SysFS: "/sys", PIDs: func() []int { return []int{b.pid} },
		Sockets: func() []string { return b.sockets },
		Listed:  func() map[string]*cri.Entry { return nil }, Failures: func() []string { return nil },
		TakeDropped: func() []*cri.Entry { return nil },
		Clock:       func() time.Time { return b.now }, Begun: b.begun, Suspects: func() bool { return b.late },
		FailedStarts: func() []cri.FailedStart { return nil }, CreatesFail: func() bool { return false },
	})
}

// checkFinding compares what a pass has found with the reason, "" for none, and the culprit.
func checkFinding(t *testing.T, found []facts.Finding, reason string, culprit int) {
	t.Helper()
	for _, f := range found {
		t.Log(f.Reason, text(f.Chain))
	}
	switch {
	case reason == "" && len(found) == 0:
	case len(found) != 1, found[0].Reason != reason, found[0].Chain.Culprit().PID != culprit:
		t.Errorf("want %q and pid %d", reason, culprit)
	}
}

// TestPipesOfStrangers: a daemon that a plugin leaves behind keeps the plugin's output open; one
// that does not, a plugin that still runs, and a pipe of the runtime's own are no fault.
func TestPipesOfStrangers(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		own          bool // the runtime keeps the other end
		reason       string
	}{
		{name: "a daemon with the output", script: "setsid sleep 1000 </dev/null & echo $! >$1", reason: "RuntimePeerStuck"},
		{name: "a daemon with the error output alone", script: "setsid sleep 1000 </dev/null >&2 & echo $! >$1", reason: "RuntimePeerStuck"},
		{name: "a daemon without it", script: "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >$1"},
		{name: "a plugin that runs", script: "echo $$ >$1; exec sleep 1000"},
		{name: "its own pipe", own: true, script: "echo $$ >$1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			lab.Must(t, err)
			t.Cleanup(func() { _ = r.Close() })
			file := socketPath(t)
			cmd := exec.Command("sh", "-c", tt.script, "sh", file)
			cmd.Stdout = w
			cmd.Stderr = w
			lab.Must(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			var pid int
			waiting.Eventually(t, func() bool {
				content, _ := os.ReadFile(file)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(content)))
				return pid != 0 && (pid == cmd.Process.Pid || strings.HasPrefix(lab.State(cmd.Process.Pid), "Z"))
			})
			t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			if !tt.own {
				lab.Must(t, w.Close())
			}
			b := book{pid: os.Getpid(), now: time.Now()}
			l := b.ledger()
			l.Pass(t.Context())
			b.now = b.now.Add(31 * time.Second)
			checkFinding(t, l.Pass(t.Context()).Findings, tt.reason, pid)
			_ = w.Close()
		})
	}
}

// TestGoneServer: the server of a socket to which the runtime was connected has ended, and nobody serves in its place.
func TestGoneServer(t *testing.T) {
	const serve = `unlink($ARGV[0]); ` + listens + `accept(C,S); syswrite(C,"x"); sleep 1000`
	for name, tt := range map[string]struct {
		shim, again bool
		reason      string
	}{
		"it has ended":                {reason: "RuntimePeerStuck"},
		"another one listens there":   {again: true},
		"a shim's, which ends so too": {shim: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			if tt.shim {
				dir := filepath.Join(filepath.Dir(path), "containerd/s")
				lab.Must(t, os.MkdirAll(dir, 0o755))
				path = filepath.Join(dir, "1")
			}
			server := waiting.Perl(t, serve, path)
			runtime := waiting.Perl(t, connects+`sysread(S,$b,1); `+sleeps, path) // it is accepted
			b := book{pid: runtime.PID, now: time.Now()}
			l := b.ledger()
			checkFinding(t, l.Pass(t.Context()).Findings, "", 0)
			server.End()
			if tt.again {
				waiting.Perl(t, serve, path)
			}
			l.Pass(t.Context())
			b.now = b.now.Add(11 * time.Second)
			found := l.Pass(t.Context()).Findings
			checkFinding(t, found, tt.reason, 0)
			if len(found) > 0 && found[0].Chain.Culprit().Name != path {
				t.Errorf("the culprit is not %s", path)
			}
			b.now = b.now.Add(time.Hour)
			l.Pass(t.Context())
			checkFinding(t, l.Pass(t.Context()).Findings, "", 0) // it was taken away
		})
	}
}
