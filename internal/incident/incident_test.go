package incident

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/health"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		runChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// node is a node with a clock and a disk of its own, on which plegd is started
// and ended.
type node struct {
	t      *testing.T
	dir    string
	boot   string
	began  time.Time
	skew   time.Duration // of CLOCK_MONOTONIC against time.Now, for a new boot
	fs     fsys
	limits Limits
	logged *observer.ObservedLogs

	*Recorder
	cancel context.CancelFunc
	ended  chan error
	opened atomic.Int64
	failed atomic.Int64
	last   *health.Verdict
	mortal *mortalFS
	stored func(*Incident)
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "incidents"), boot: "boot-1", began: time.Now(), limits: DefaultLimits()}
	t.Cleanup(n.kill)
	return n
}

// start starts plegd.
func (n *node) start() {
	n.t.Helper()
	core, logged := observer.New(zap.InfoLevel)
	n.logged, n.last = logged, nil
	if n.fs == nil {
		n.fs = osFS{}
	}
	n.mortal = &mortalFS{fsys: n.fs}
	n.Recorder = New(Options{
		Dir: n.dir, BootID: func() (string, error) { return n.boot, nil },
		Monotonic: func() time.Duration { return time.Hour + time.Since(n.began) + n.skew },
		Version:   "1.2.3", Limits: n.limits, Log: zap.New(core), fs: n.mortal, stored: n.stored,
		Opened: func() { n.opened.Add(1) }, WriteFailed: func() { n.failed.Add(1) },
	})
	ctx, cancel := context.WithCancel(n.t.Context())
	n.cancel, n.ended = cancel, make(chan error, 1)
	go func() { n.ended <- n.Run(ctx) }()
}

// stop ends it by SIGTERM.
func (n *node) stop() {
	n.cancel()
	if err := <-n.ended; err != nil {
		n.t.Errorf("Run returned %v", err)
	}
	n.cancel = nil
}

// kill ends it without a word: what it would write at its end is not written.
func (n *node) kill() {
	if n.cancel == nil {
		return
	}
	n.mortal.dead.Store(true)
	n.stop()
}

var errDead = errors.New("plegd is dead")

// mortalFS refuses to begin a file once it is dead.
type mortalFS struct {
	fsys
	dead atomic.Bool
}

func (m *mortalFS) Create(path string) (file, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.fsys.Create(path)
}

// snapshot is a judgement of now.
func snapshot(f *health.Facts, previous, v *health.Verdict) *health.Snapshot {
	return &health.Snapshot{SchemaVersion: health.SchemaVersion, At: time.Now(), Verdict: *v, Facts: *f, Previous: previous}
}

// say lets plegd judge the node now, with these reasons active; none: healthy.
func (n *node) say(state health.State, reasons ...string) {
	v := &health.Verdict{State: state, Active: []health.Active{}, Predicted: health.Predicted{NodeReady: state != health.StateUnhealthy}}
	if state == health.StateUnhealthy {
		v.KubeletMessage = "container runtime is down"
	}
	for _, id := range reasons {
		v.Active = append(v.Active, health.Active{ID: id, Severity: health.SeverityCritical, Since: time.Now(), Evidence: []string{"it is so"}})
	}
	if len(reasons) > 0 {
		v.Reason = reasons[0]
	}
	f := &health.Facts{Started: n.began, Endpoint: health.Endpoint{Path: "/run/x.sock"}}
	n.Judged(snapshot(f, n.last, v))
	n.last = v
}

func (n *node) well() { n.say(health.StateHealthy) }

func (n *node) degraded(reasons ...string) { n.say(health.StateDegraded, reasons...) }

// settle waits until everything is stored.
func (n *node) settle() {
	n.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if n.settled() {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("not stored within 20 s: %+v; logged %v", n.List(), n.logged.All())
		}
	}
}

func (n *node) settled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.loaded && len(n.pending) == 0 && (n.open == nil || n.open.written == n.open.version)
}

// one returns the only incident that there is, with its story.
func (n *node) one() *Incident {
	n.t.Helper()
	list := n.List()
	if len(list) != 1 {
		n.t.Fatalf("%d incidents, want 1: %+v", len(list), list)
	}
	doc, err := n.Get(n.t.Context(), list[0].ID)
	if err != nil {
		n.t.Fatal(err)
	}
	return doc
}

// onDisk returns what the files say.
func (n *node) onDisk() []Summary {
	n.t.Helper()
	list, bad, err := Read(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || bad > 0 {
		n.t.Fatalf("read %s: %v, %d unreadable", n.dir, err, bad)
	}
	return list
}

func ids2(list []Summary) string {
	var out []string
	for _, s := range list {
		out = append(out, string(s.Outcome)+"/"+s.Reason)
	}
	return strings.Join(out, " ")
}

// slowFS is a disk whose syncs wait until they are let go.
type slowFS struct {
	osFS
	mu   sync.Mutex
	gate chan struct{} // nil: fast
}

type slowFile struct {
	file
	gate chan struct{}
}

func (s *slowFS) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *slowFS) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

func (s *slowFS) Create(path string) (file, error) {
	f, err := s.osFS.Create(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &slowFile{f, s.gate}, err
}

func (f *slowFile) Sync() error {
	if f.gate != nil {
		<-f.gate
	}
	return f.file.Sync()
}

// fullFS is a disk that takes nothing more while full.
type fullFS struct {
	osFS
	mu   sync.Mutex
	full bool
}

type fullFile struct{ file }

var errFull = errors.New("no space left on device")

func (f *fullFS) set(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func (f *fullFS) Create(path string) (file, error) {
	out, err := f.osFS.Create(path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.full {
		return fullFile{out}, nil
	}
	return out, err
}

func (fullFile) Write([]byte) (int, error) { return 0, errFull }
