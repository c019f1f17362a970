package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

// boot is a node's /proc and state directory, with a clock of its own.
type boot struct {
	procfs, dir string
	mono        time.Duration
	logged      *observer.ObservedLogs
	store       *store
}

func newBoot(t *testing.T) *boot {
	t.Helper()
	b := &boot{procfs: t.TempDir(), dir: filepath.Join(t.TempDir(), "plegd"), mono: time.Hour}
	core, logged := observer.New(zap.DebugLevel)
	b.logged = logged
	b.start(t, "first", zap.New(core))
	return b
}

// start is one of plegd, in the boot that has this id.
func (b *boot) start(t *testing.T, id string, log *zap.Logger) {
	t.Helper()
	path := filepath.Join(b.procfs, "sys/kernel/random")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "boot_id"), []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.store = newStore(b.dir, b.procfs, log)
	b.store.clock = func() time.Duration { return b.mono }
}

func savedFacts() health.Facts {
	now := time.Now()
	return health.Facts{
		Evidence: health.Evidence{Kubelet: &health.Kubelet{Seen: true}},
		Relist:   health.Relist{LastSeen: now.Add(-10 * time.Second)},
		// The older of the two decides, and is kept.
		Modelled: health.Modelled{LastSeen: now.Add(-20 * time.Second)},
		Status: health.Status{
			Answered: true, LastGood: now.Add(-7 * time.Second), RuntimeReady: &health.Condition{Status: true},
			NetworkReady: &health.Condition{Reason: "R", Message: "M"},
		},
	}
}

func near(t *testing.T, what string, got time.Time, wantAge time.Duration) {
	t.Helper()
	if age := time.Since(got); age < wantAge || age > wantAge+5*time.Second {
		t.Errorf("%s is %s old, want about %s", what, age, wantAge)
	}
}

// TestLastSeenSurvivesARestart, with the time that nobody watched.
func TestLastSeenSurvivesARestart(t *testing.T) {
	b := newBoot(t)
	if r := b.store.load(); !r.lastSeen.IsZero() || b.logged.Len() != 0 {
		t.Fatalf("the first start ever found %+v and said %v", r, b.logged.All())
	}
	f := savedFacts()
	b.store.recent = func() []view.RelistBin { return []view.RelistBin{{Relists: 5, State: health.StateHealthy}} }
	if err := b.store.save(&f); err != nil {
		t.Fatal(err)
	}
	b.mono += 3 * time.Second
	r := b.store.load()
	near(t, "last seen", r.lastSeen, 23*time.Second)
	near(t, "the last good Status", r.status.LastGood, 10*time.Second)
	near(t, "the plot", r.written, 3*time.Second)
	if len(r.recent) != 1 || r.recent[0].Relists != 5 || r.recent[0].State != health.StateHealthy {
		t.Errorf("the plot's bins are %+v", r.recent)
	}
	if r.gap != 3*time.Second || !r.status.Restored || !r.status.Answered || !r.kubeletSeen {
		t.Errorf("gap %s, status %+v, the kubelet has answered: %t", r.gap, r.status, r.kubeletSeen)
	}
	// A kubelet that is down is not forgotten by the next save.
	f.Evidence.Kubelet = nil
	if err := b.store.save(&f); err != nil {
		t.Fatal(err)
	}
	if r := b.store.load(); !r.kubeletSeen {
		t.Error("that the kubelet has answered is lost with the second save")
	}
	if r.status.RuntimeReady == nil || !r.status.RuntimeReady.Status || r.status.NetworkReady == nil || r.status.NetworkReady.Message != "M" {
		t.Errorf("conditions %+v, %+v", r.status.RuntimeReady, r.status.NetworkReady)
	}
	info, err := os.Stat(filepath.Join(b.dir, stateFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want mode 0600", info, err)
	}
}

// TestAnotherBootBeginsAnew: moments of another boot mean nothing.
func TestAnotherBootBeginsAnew(t *testing.T) {
	b := newBoot(t)
	f := savedFacts()
	mkdir(t, b.dir)
	if err := b.store.save(&f); err != nil {
		t.Fatal(err)
	}
	b.start(t, "second", b.store.log)
	if r := b.store.load(); !r.lastSeen.IsZero() || r.status.Answered || r.kubeletSeen {
		t.Errorf("restored %+v from another boot", r)
	}
}

// TestBrokenState: plegd starts without it, and says so in one line.
func TestBrokenState(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *boot, string){
		"garbage":     func(t *testing.T, _ *boot, path string) { write(t, path, "garbage") },
		"empty":       func(t *testing.T, _ *boot, path string) { write(t, path, "") },
		"huge":        func(t *testing.T, _ *boot, path string) { write(t, path, strings.Repeat(" ", maxStateBytes+1)) },
		"a directory": func(t *testing.T, _ *boot, path string) { mkdir(t, path) },
		"no boot id": func(t *testing.T, b *boot, _ string) {
			b.store.bootID = func() (string, error) { return "", os.ErrNotExist }
		},
		"from tomorrow":  func(_ *testing.T, b *boot, _ string) { b.mono = time.Minute },
		"dir is no dir":  func(t *testing.T, b *boot, path string) { b.store.dir = path },
		"another schema": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoot(t)
			f := savedFacts()
			mkdir(t, b.dir)
			if err := b.store.save(&f); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(b.dir, stateFile)
			lines := 1
			if spoil != nil {
				if name == "a directory" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				spoil(t, b, path)
			} else {
				write(t, path, `{"schema":99}`)
				lines = 0
			}
			if r := b.store.load(); !r.lastSeen.IsZero() {
				t.Errorf("restored %+v", r)
			}
			if n := b.logged.Len(); n != lines {
				t.Errorf("%d log lines, want %d: %v", n, lines, b.logged.All())
			}
		})
	}
}

// TestNeverSeenIsNotSaved as seen: zero times come back as zero.
func TestNeverSeenIsNotSaved(t *testing.T) {
	b := newBoot(t)
	mkdir(t, b.dir)
	if err := b.store.save(&health.Facts{}); err != nil {
		t.Fatal(err)
	}
	if r := b.store.load(); !r.lastSeen.IsZero() || !r.status.LastGood.IsZero() || r.gap != 0 {
		t.Errorf("restored %+v, want nothing", r)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestChangeIsSaved: at a change of verdict, not only every few seconds.
func TestChangeIsSaved(t *testing.T) {
	b := newBoot(t)
	changed, facts := make(chan struct{}, 1), make(chan struct{}, 8)
	k := &keeper{store: b.store, changed: changed, facts: func() *health.Facts {
		facts <- struct{}{}
		f := savedFacts()
		return &f
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	changed <- struct{}{}
	select {
	case <-facts:
	case <-time.After(saveEvery - 500*time.Millisecond):
		t.Error("a change of verdict was not saved")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStateDirHangs: a save that hangs is reported once, and so is its end.
func TestStateDirHangs(t *testing.T) {
	b := newBoot(t)
	mkdir(t, b.dir)
	release := make(chan struct{})
	k := &keeper{store: b.store, facts: func() *health.Facts { <-release; return &health.Facts{} }}
	for range 2 { // the second one while the first still hangs
		k.save(t.Context(), 10*time.Millisecond)
	}
	if s, ok := k.Source(); !ok || s.Up || !strings.Contains(s.Err, "no answer within 10ms") {
		t.Errorf("%+v, %t", s, ok)
	}
	close(release)
	for k.saves.Busy() {
		time.Sleep(time.Millisecond)
	}
	k.save(t.Context(), saveTimeout)
	if s, ok := k.Source(); !ok || !s.Up {
		t.Errorf("%+v, %t", s, ok)
	}
	if n := b.logged.Len(); n != 2 {
		t.Errorf("%d log lines, want one of the hang and one of its end: %v", n, b.logged.All())
	}
}
