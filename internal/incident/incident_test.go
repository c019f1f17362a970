package incident

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/leaktest"
	"github.com/plegd/plegd/test/must"
)

func TestMain(m *testing.M) { leaktest.Check(m) }

// node is a node with a disk, on which plegd is started and stopped.
type node struct {
	t      *testing.T
	dir    string
	logged *observer.ObservedLogs

	*Recorder
	cancel context.CancelFunc
	ended  chan error
	opened int
	// culprit is the end of the chain while the verdict is not healthy.
	culprit *facts.Link
	saved   time.Time // when plegd last saved its state
	seen    map[int]Sighting
	last    *facts.Verdict
	facts   facts.Facts
	// disk replaces writes: nil writes files.
	disk   func(path string, content []byte) error
	writes atomic.Int64
	killed atomic.Bool
}

// run calls test with a node on which plegd runs, in fake time.
func run(t *testing.T, test func(n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, dir: filepath.Join(t.TempDir(), "incidents"), disk: writeFile}
		n.facts.Endpoint.Path = "/run/x.sock"
		n.start()
		test(n)
		n.stop()
	})
}

func (n *node) start() {
	core, logged := observer.New(zap.InfoLevel)
	n.logged, n.last = logged, nil
	n.killed.Store(false)
	n.Recorder = New(n.dir, "1.2.3", zap.New(core), func() { n.opened++ })
	n.Resume(n.saved)
	n.Look(func(pid int) Sighting { return n.seen[pid] })
	n.writeFile = func(path string, content []byte) error {
		if n.killed.Load() {
			return errors.New("plegd was killed")
		}
		n.writes.Add(1)
		return n.disk(path, content)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	n.cancel, n.ended = cancel, make(chan error, 1)
	go func() { n.ended <- n.Run(ctx) }()
}

// stop ends plegd by SIGTERM.
func (n *node) stop() {
	if n.cancel == nil {
		return
	}
	n.cancel()
	n.cancel = nil
	if err := <-n.ended; err != nil {
		n.t.Errorf("Run returned %v", err)
	}
}

// kill ends plegd without its last writes.
func (n *node) kill() {
	n.killed.Store(true)
	n.stop()
}

// judge judges the node with these active reasons, now and in each second of wait.
func (n *node) judge(state facts.State, wait time.Duration, reasons ...string) {
	v := facts.Verdict{State: state, Predicted: facts.Predicted{NodeReady: state != facts.StateUnhealthy}}
	if state == facts.StateUnhealthy {
		v.KubeletMessage = "container runtime is down"
	}
	for _, id := range reasons {
		v.Active = append(v.Active, facts.Active{ID: id, Severity: facts.SeverityCritical, Since: time.Now(), Evidence: []string{"it is so"}})
	}
	if len(reasons) > 0 {
		v.Reason = reasons[0]
		v.Culprit = n.culprit
	}
	for {
		n.Judged(&facts.Snapshot{SchemaVersion: facts.SchemaVersion, At: time.Now(), Verdict: v, Facts: n.facts, Previous: n.last})
		n.last = &v
		step := min(wait, time.Second)
		time.Sleep(step)
		synctest.Wait()
		if wait -= step; wait <= 0 {
			return
		}
	}
}

func (n *node) well(wait time.Duration) { n.judge(facts.StateHealthy, wait) }

func (n *node) degraded(wait time.Duration, reasons ...string) {
	n.judge(facts.StateDegraded, wait, reasons...)
}

// one returns the newest incident.
func (n *node) one() *Incident {
	n.t.Helper()
	if len(n.List()) == 0 {
		n.t.Fatal("no incident")
	}
	doc, err := n.Get(n.t.Context(), n.List()[0].ID)
	must.Do(n.t, err)
	return doc
}

// onDisk returns the outcomes and reasons of the files.
func (n *node) onDisk() string {
	n.t.Helper()
	list, bad, err := Read(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(bad) > 0 {
		n.t.Fatalf("read %s: %v, unreadable: %v", n.dir, err, bad)
	}
	return outcomes(list)
}

func outcomes(list []Summary) string {
	var out []string
	for _, s := range list {
		out = append(out, string(s.Outcome)+"/"+s.Reason)
	}
	return strings.Join(out, " ")
}

func (n *node) file() string {
	n.t.Helper()
	b, err := os.ReadFile(path(n.dir, n.List()[0].ID))
	must.Do(n.t, err)
	return string(b)
}
