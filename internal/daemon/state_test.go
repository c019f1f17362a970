package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/ledger"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// boot is a node's /proc and state directory, with a clock of its own.
type boot struct {
	*store

	id     string // the file of the boot id
	mono   time.Duration
	saved  facts.Facts
	logged *observer.ObservedLogs
}

func newBoot(t *testing.T) *boot {
	t.Helper()
	core, logged := observer.New(zap.DebugLevel)
	b := &boot{mono: time.Hour, logged: logged}
	b.store = &store{
		dir: filepath.Join(t.TempDir(), "plegd"), procfs: t.TempDir(), log: zap.New(core),
		clock: func() time.Duration { return b.mono }, facts: func() *facts.Facts { return &b.saved },
		condition: func() *condition { return nil },
		recent:    func() []view.RelistBin { return []view.RelistBin{{Relists: 5, State: facts.StateHealthy}} },
	}
	mkdir(t, b.dir)
	mkdir(t, filepath.Join(b.procfs, "sys/kernel/random"))
	b.owed = func() map[string]time.Time { return nil }
	failedAt := time.Now().Add(-5 * time.Second)
	b.memory = func() ledger.Memory { return ledger.Memory{FailedAt: failedAt, Servers: []string{"/run/s.sock"}} }
	b.id = filepath.Join(b.procfs, "sys/kernel/random/boot_id")
	write(t, b.id, "first\n")
	now := time.Now()
	b.saved = facts.Facts{
		Evidence: facts.Evidence{Kubelet: &facts.Kubelet{Seen: true}},
		Relist:   facts.Relist{LastSeen: now.Add(-10 * time.Second)},
		// The older of the two decides, and is kept.
		Modelled: facts.Modelled{LastSeen: now.Add(-20 * time.Second)},
		Status: facts.Status{
			Answered: true, LastGood: now.Add(-7 * time.Second), RuntimeReady: &facts.Condition{Status: true},
			NetworkReady: &facts.Condition{Reason: "R", Message: "M"},
		},
	}
	return b
}

func (b *boot) mustSave(t *testing.T) {
	t.Helper()
	must.Do(t, b.save())
}

func (b *boot) load(t *testing.T) restored {
	t.Helper()
	r, err := b.open()
	must.Do(t, err)
	return r
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	must.Do(t, os.MkdirAll(path, 0o700))
}

// TestStateSurvivesARestart: last seen with the time that nobody watched, Status, and
// that the kubelet has answered; moments of another boot mean nothing.
func TestStateSurvivesARestart(t *testing.T) {
	b := newBoot(t)
	begun := time.Now()
	near := func(what string, got time.Time, age time.Duration) {
		t.Helper()
		if got.Before(begun.Add(-age)) || got.After(time.Now().Add(-age)) {
			t.Errorf("%s is %s old, want %s before its load", what, time.Since(got), age)
		}
	}
	if r := b.load(t); !r.lastSeen.IsZero() || b.logged.Len() != 0 {
		t.Fatalf("the first start ever found %+v and said %v", r, b.logged.All())
	}
	b.mustSave(t)
	b.mono += 3 * time.Second
	r := b.load(t)
	near("last seen", r.lastSeen, 23*time.Second)
	near("the last good Status", r.Status.LastGood, 10*time.Second)
	near("the plot", r.written, 3*time.Second)
	near("the last start that failed", r.memory.FailedAt, 5*time.Second+3*time.Second)
	check.Equal(t, strings.Join(r.memory.Servers, " "), "/run/s.sock", "servers of the runtime")
	if len(r.Recent) != 1 || r.Recent[0].Relists != 5 || r.Recent[0].State != facts.StateHealthy {
		t.Errorf("the plot's bins are %+v", r.Recent)
	}
	if s := r.Status; r.gap != 3*time.Second || !s.Restored || !s.Answered || !r.KubeletSeen || !s.RuntimeReady.Status || s.NetworkReady.Message != "M" {
		t.Errorf("gap %s, status %+v, the kubelet has answered: %t", r.gap, s, r.KubeletSeen)
	}
	// A kubelet that is down is not forgotten by the next save.
	b.saved.Evidence.Kubelet = nil
	b.mustSave(t)
	if r := b.load(t); !r.KubeletSeen {
		t.Error("that the kubelet has answered is lost with the second save")
	}
	if info, err := os.Stat(filepath.Join(b.dir, stateFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want mode 0600", info, err)
	}
	b.saved = facts.Facts{}
	b.mustSave(t)
	if r := b.load(t); !r.lastSeen.IsZero() || !r.Status.LastGood.IsZero() || r.gap != 0 {
		t.Errorf("restored %+v of a runtime that was never seen", r)
	}
	b.saved = newBoot(t).saved
	b.mustSave(t)
	write(t, b.id, "second\n")
	if r := b.load(t); !r.lastSeen.IsZero() || r.Status.Answered || r.KubeletSeen {
		t.Errorf("restored %+v from another boot", r)
	}
}

// TestBrokenState: plegd starts without it, and says so in one line.
func TestBrokenState(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *boot, string){
		"garbage": func(t *testing.T, _ *boot, path string) { write(t, path, "garbage") },
		"empty":   func(t *testing.T, _ *boot, path string) { write(t, path, "") },
		"huge":    func(t *testing.T, _ *boot, path string) { write(t, path, strings.Repeat(" ", maxStateBytes+1)) },
		"a directory": func(t *testing.T, _ *boot, path string) {
			_ = os.Remove(path)
			mkdir(t, path)
		},
		"no boot id":    func(_ *testing.T, b *boot, _ string) { _ = os.Remove(b.id) },
		"dir is no dir": func(_ *testing.T, b *boot, path string) { b.dir = path },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoot(t)
			b.mustSave(t)
			spoil(t, b, filepath.Join(b.dir, stateFile))
			if r := b.load(t); !r.lastSeen.IsZero() {
				t.Errorf("restored %+v", r)
			}
			if n := b.logged.Len(); n != 1 {
				t.Errorf("%d log lines, want 1: %v", n, b.logged.All())
			}
		})
	}
}

// TestChangeIsSaved: at a change of verdict, not only every few seconds.
func TestChangeIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoot(t)
		changed, judged := make(chan struct{}, 1), make(chan struct{}, 8)
		b.changed = changed
		b.facts = func() *facts.Facts { judged <- struct{}{}; return &b.saved }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		changed <- struct{}{}
		select {
		case <-judged:
		case <-time.After(saveEvery / 2):
			t.Error("a change of verdict was not saved")
		}
		cancel()
		check.NoError(t, <-done, "the end")
		synctest.Wait() // for a save that was abandoned at the end
	})
}

// TestStateDirHangs: a save that hangs is reported once, and so is its end.
func TestStateDirHangs(t *testing.T) {
	b := newBoot(t)
	release := make(chan struct{})
	b.facts = func() *facts.Facts { <-release; return &b.saved }
	for range 2 { // the second one while the first still hangs
		b.keep(t.Context(), 10*time.Millisecond)
	}
	if s, ok := b.Source(); !ok || s.Up || !strings.Contains(s.Err, "no answer within 10ms") {
		t.Errorf("%+v, %t", s, ok)
	}
	close(release)
	for b.saves.Busy() {
		time.Sleep(time.Millisecond)
	}
	b.keep(t.Context(), saveTimeout)
	if s, ok := b.Source(); !ok || !s.Up {
		t.Errorf("%+v, %t", s, ok)
	}
}

// holdStateDir names the directory that a child of TestStateDirInUse holds.
const holdStateDir = "PLEGD_TEST_HOLD_STATE_DIR"

// TestStateDirInUse: a second plegd on the same state directory is refused and
// learns the pid of the first; when that has ended, the directory is free, and one
// that cannot be written is no reason not to run.
func TestStateDirInUse(t *testing.T) {
	open := func(dir string) error {
		_, err := (&store{dir: dir, procfs: "/proc", log: zap.NewNop(), clock: monotonic}).open()
		return err
	}
	if dir := os.Getenv(holdStateDir); dir != "" {
		s := &store{dir: dir, procfs: "/proc", log: zap.NewNop(), clock: monotonic}
		_, err := s.open()
		fmt.Println(err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.locked.Close()
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	first := exec.Command(os.Args[0], "-test.run=^TestStateDirInUse$")
	first.Env = append(os.Environ(), holdStateDir+"="+dir)
	stdin, err := first.StdinPipe()
	must.Do(t, err)
	stdout, err := first.StdoutPipe()
	must.Do(t, err)
	must.Do(t, first.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the first plegd: %q, %v", line, err)
	}
	if err := open(dir); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), fmt.Sprint(dir, ": plegd with pid ", first.Process.Pid, " uses it")) {
		t.Errorf("while pid %d has it: %v", first.Process.Pid, err)
	}
	_ = stdin.Close()
	must.Do(t, first.Wait())
	check.NoError(t, open(dir), "when the first has ended")
	check.NoError(t, open(filepath.Join(dir, lockFile, "below-a-file")), "a directory that cannot be made")
}

// FuzzStateFile reads any file in the place of the state: the result lies in the past
// of this boot, or is empty.
func FuzzStateFile(f *testing.F) {
	f.Add([]byte(`{"boot_id":"first","written_monotonic_ns":3599000000000,"last_seen_monotonic_ns":3590000000000,"last_good_status_monotonic_ns":3595000000000,"status":{"answered":true,"runtime_ready":{"status":true}}}`))
	f.Add([]byte(`{"boot_id":"first","written_monotonic_ns":-9223372036854775808,"last_seen_monotonic_ns":9223372036854775807}`))
	f.Add([]byte(`{"boot_id":"first","written_monotonic_ns":1,"last_seen_monotonic_ns":-9223372036854775808}`))
	f.Add([]byte(`{"boot_id":"first","written_monotonic_ns":3700000000000,"last_seen_monotonic_ns":1}`))
	f.Add([]byte(`[{}]`))
	f.Add([]byte{})
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sys/kernel/random"), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "sys/kernel/random/boot_id"), []byte("first\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	s := &store{dir: root, procfs: root, clock: func() time.Duration { return time.Hour }}
	f.Fuzz(func(t *testing.T, b []byte) {
		write(t, filepath.Join(root, stateFile), string(b))
		r, err := s.read()
		if err != nil && (!r.lastSeen.IsZero() || r.gap != 0) {
			t.Errorf("%q: %v, and yet %+v", b, err, r)
		}
		for _, at := range []time.Time{r.lastSeen, r.Status.LastGood} {
			if !at.IsZero() && (at.After(time.Now()) || time.Since(at) > time.Hour+time.Minute) {
				t.Errorf("%q: %s is no moment of this boot", b, at)
			}
		}
		if r.gap < 0 || r.gap > time.Hour {
			t.Errorf("%q: nobody watched for %s", b, r.gap)
		}
	})
}
