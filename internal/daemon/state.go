package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/view"
)

// What survives a restart of plegd within one boot: when the runtime was last
// seen. It is written every few seconds and when the verdict changes, without a
// sync: a file that a crash of the node loses is of another boot anyway.
const (
	stateFile     = "last-seen.json"
	stateSchema   = 1
	saveEvery     = 10 * time.Second
	stateTimeout  = time.Second
	maxStateBytes = 64 << 10
)

// savedState is the file's content. Moments are on CLOCK_MONOTONIC, which all
// processes of one boot share and no clock step moves; -1 means never.
type savedState struct {
	Schema   int    `json:"schema"`
	BootID   string `json:"boot_id"`
	Written  int64  `json:"written_monotonic_ns"`
	LastSeen int64  `json:"last_seen_monotonic_ns"`
	LastGood int64  `json:"last_good_status_monotonic_ns"`

	Answered     bool              `json:"status_answered"`
	RuntimeReady *health.Condition `json:"runtime_ready,omitempty"`
	NetworkReady *health.Condition `json:"network_ready,omitempty"`

	KubeletSeen bool `json:"kubelet_seen,omitempty"`

	// Recent are the bins of the page's plot, the last of which is of Written.
	Recent []view.RelistBin `json:"recent,omitempty"`
}

// restored is what was read back.
type restored struct {
	lastSeen time.Time
	status   health.Status
	gap      time.Duration // how long nobody watched
	// kubeletSeen is true where the kubelet's healthz has answered in this boot.
	kubeletSeen bool
	// recent are the bins of the page's plot, the last of which is of written.
	recent  []view.RelistBin
	written time.Time
}

// store keeps the state in a file.
type store struct {
	dir    string
	log    *zap.Logger
	clock  func() time.Duration // CLOCK_MONOTONIC
	bootID func() (string, error)
	locked *os.File // nil without the lock
	// kubeletSeen is as in restored; it stays.
	kubeletSeen atomic.Bool
	// recent returns the bins of the page's plot; nil for none.
	recent func() []view.RelistBin
}

func newStore(dir, procfs string, log *zap.Logger) *store {
	return &store{dir: dir, log: log, clock: func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0
		}
		return time.Duration(ts.Nano())
	}, bootID: sync.OnceValues(func() (string, error) { return bootID(procfs) })}
}

// maxBootID is more than a UUID takes, in bytes.
const maxBootID = 64

func bootID(procfs string) (string, error) {
	f, err := os.Open(filepath.Join(procfs, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxBootID))
	return strings.TrimSpace(string(b)), err
}

// load reads the state back. Whatever stands in its way, plegd starts without.
func (s *store) load() restored {
	type result struct {
		state restored
		err   error
	}
	done := make(chan result, 1)
	go func() { // a dead disk must not keep plegd from starting
		r, err := s.read()
		done <- result{r, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			s.log.Warn("starting without what was last seen before the restart", zap.Error(r.err))
		}
		return r.state
	case <-time.After(stateTimeout):
		s.log.Warn("starting without what was last seen before the restart: the state directory does not answer", zap.String("dir", s.dir))
		return restored{}
	}
}

func (s *store) read() (restored, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return restored{}, err
	}
	path := filepath.Join(s.dir, stateFile)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return restored{}, nil // the first start
	}
	if err != nil {
		return restored{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStateBytes {
		return restored{}, fmt.Errorf("%s: want a regular file of at most %d bytes", path, maxStateBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return restored{}, err
	}
	var saved savedState
	if err := json.Unmarshal(b, &saved); err != nil {
		return restored{}, fmt.Errorf("%s: %w", path, err)
	}
	boot, err := s.bootID()
	if err != nil {
		return restored{}, fmt.Errorf("read the boot id: %w", err)
	}
	if saved.Schema != stateSchema || saved.BootID != boot {
		return restored{}, nil // an older plegd's, or of another boot
	}
	now, mono := time.Now(), s.clock()
	moment := func(ns int64) time.Time {
		if ns < 0 || ns > int64(mono) {
			return time.Time{}
		}
		return now.Add(-(mono - time.Duration(ns)))
	}
	if saved.Written < 0 || saved.Written > int64(mono) {
		return restored{}, fmt.Errorf("%s: it was not written in the time since boot", path)
	}
	r := restored{lastSeen: moment(saved.LastSeen), gap: mono - time.Duration(saved.Written)}
	r.kubeletSeen, r.recent, r.written = saved.KubeletSeen, saved.Recent, moment(saved.Written)
	s.kubeletSeen.Store(saved.KubeletSeen)
	if r.lastSeen.IsZero() {
		return restored{kubeletSeen: r.kubeletSeen, recent: r.recent, written: r.written}, nil
	}
	r.status = health.Status{
		Answered: saved.Answered, LastGood: moment(saved.LastGood), Restored: true,
		RuntimeReady: saved.RuntimeReady, NetworkReady: saved.NetworkReady,
	}
	return r, nil
}

// save writes the state, in one piece or not at all.
func (s *store) save(f *health.Facts) error {
	boot, err := s.bootID()
	if err != nil {
		return fmt.Errorf("read the boot id: %w", err)
	}
	now, mono := time.Now(), s.clock()
	moment := func(t time.Time) int64 {
		if t.IsZero() {
			return -1
		}
		return int64(mono - now.Sub(t))
	}
	if k := f.Evidence.Kubelet; k != nil && k.Seen {
		s.kubeletSeen.Store(true)
	}
	saved := savedState{
		Schema: stateSchema, BootID: boot, Written: int64(mono),
		LastSeen: moment(health.LastSeen(f)), LastGood: moment(f.Status.LastGood),
		Answered: f.Status.Answered, RuntimeReady: f.Status.RuntimeReady, NetworkReady: f.Status.NetworkReady,
		KubeletSeen: s.kubeletSeen.Load(),
	}
	if s.recent != nil {
		saved.Recent = s.recent()
	}
	b, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, stateFile)
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// keeper saves the state every few seconds, when the verdict has changed, and
// once more at the end. A disk that hangs holds up nobody but it.
type keeper struct {
	store   *store
	facts   func() *health.Facts
	changed <-chan struct{} // the verdict has; holds one at most

	begun atomic.Pointer[time.Time] // of the save under way
	saved atomic.Pointer[health.Source]
}

// saveHangs is how long a save is under way before the directory counts as one
// that does not answer.
const saveHangs = 10 * time.Second

// Source reports whether the state directory can be written; ok is false before
// the first save.
func (k *keeper) Source() (s health.Source, ok bool) {
	if p := k.saved.Load(); p != nil {
		s, ok = *p, true
	}
	if begun := k.begun.Load(); begun != nil && time.Since(*begun) > saveHangs {
		s = health.Source{At: *begun, Duration: time.Since(*begun), Err: fmt.Sprintf("a save in %s has not ended within %s", k.store.dir, saveHangs)}
		ok = true
	}
	return s, ok
}

// save saves once, and notes what came of it.
func (k *keeper) save() error {
	f := k.facts()
	start := time.Now()
	k.begun.Store(&start)
	defer k.begun.Store(nil)
	err := k.store.save(f)
	s := &health.Source{Up: err == nil, At: time.Now(), Duration: time.Since(start)}
	if err != nil {
		s.Err = err.Error()
	}
	k.saved.Store(s)
	return err
}

// String names the task.
func (k *keeper) String() string { return "state" }

// Run saves until ctx ends, and then returns nil.
func (k *keeper) Run(ctx context.Context) error {
	saves := make(chan struct{}, 1) // one more while one is under way
	done := make(chan struct{})
	go func() {
		defer close(done)
		var failed logging.OnChange[string] // the last error
		for range saves {
			err := k.save()
			if err == nil {
				if _, changed := failed.Set(""); changed {
					k.store.log.Info("the state directory can be written again", zap.String("dir", k.store.dir))
				}
			} else if _, changed := failed.Set(err.Error()); changed {
				k.store.log.Warn("cannot save what was last seen: plegd will start without it", zap.Error(err))
			}
		}
	}()
	hung := false
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.changed:
		case <-ctx.Done():
			k.end(saves, done)
			return nil
		}
		if s, _ := k.Source(); k.begun.Load() == nil {
			hung = false
		} else if s.Duration > saveHangs && !hung {
			hung = true
			k.store.log.Warn("the state directory does not answer: plegd will start without what was last seen",
				zap.String("error", s.Err))
		}
		select {
		case saves <- struct{}{}:
		default: // one is to be made already
		}
	}
}

// end saves once more and waits for that, not for long.
func (k *keeper) end(saves chan<- struct{}, done <-chan struct{}) {
	select {
	case saves <- struct{}{}:
	case <-time.After(stopSave):
	}
	close(saves)
	select {
	case <-done:
	case <-time.After(stopSave):
	}
}

// stopSave is how long plegd waits at its end for the last save.
const stopSave = 200 * time.Millisecond
