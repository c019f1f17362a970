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

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/view"
)

// The state survives a restart of plegd within one boot. It is written without a sync:
// a file that a crash of the node loses would be of another boot anyway.
const (
	stateFile     = "last-seen.json"
	stateSchema   = 1
	maxStateBytes = 64 << 10
	maxBootID     = 64 // bytes; more than a UUID

	saveEvery = 10 * time.Second
	// stateTimeout limits reading and locking at the start, saveTimeout one save, and
	// lastSaveTimeout the one at the end.
	stateTimeout    = time.Second
	saveTimeout     = 10 * time.Second
	lastSaveTimeout = 200 * time.Millisecond

	// lockFile is locked by the plegd that uses a state directory. The kernel releases
	// the lock when that process ends.
	lockFile = "lock"
)

// savedState is the content of the file. Moments are on CLOCK_MONOTONIC, which all
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

// restored is the state of the plegd before.
type restored struct {
	lastSeen time.Time
	status   health.Status
	gap      time.Duration // between its last save and the start of this plegd
	// kubeletSeen is true if the kubelet's healthz has answered in this boot.
	kubeletSeen bool
	// recent are the bins of the page's plot, the last of which is of written.
	recent  []view.RelistBin
	written time.Time
}

// InUseError is returned for a state directory that another plegd uses.
type InUseError struct {
	Dir string
	// PID is the other plegd's, 0 if it is in another pid namespace.
	PID int
}

func (e *InUseError) Error() string {
	holder := "another plegd, in another pid namespace, uses it"
	if e.PID > 0 {
		holder = fmt.Sprintf("plegd with pid %d uses it", e.PID)
	}
	return fmt.Sprintf("--state-dir: %s: %s: want a directory of its own for each plegd", e.Dir, holder)
}

// store keeps the state in a directory. No call waits for a disk that hangs.
type store struct {
	dir    string
	log    *zap.Logger
	clock  func() time.Duration // CLOCK_MONOTONIC
	bootID func() (string, error)
	locked *os.File // nil without the lock; closing it releases the lock
	// kubeletSeen is as in restored; once set it stays.
	kubeletSeen atomic.Bool
	// recent returns the bins of the page's plot; nil for none.
	recent func() []view.RelistBin
}

func newStore(dir, procfs string, log *zap.Logger) *store {
	return &store{dir: dir, log: log, clock: monotonic,
		bootID: sync.OnceValues(func() (string, error) { return bootID(procfs) })}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func bootID(procfs string) (string, error) {
	f, err := os.Open(filepath.Join(procfs, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxBootID))
	return strings.TrimSpace(string(b)), err
}

// lock takes the directory for this process. It returns an *InUseError if another plegd
// has it. A directory that cannot be written is no error: load and save report it.
func (s *store) lock() error {
	f, err := new(bounded.Slot[*os.File]).Do(context.Background(), stateTimeout,
		func(context.Context) (*os.File, error) { return s.takeLock() })
	var used *InUseError
	if errors.As(err, &used) {
		return used
	}
	s.locked = f
	return nil
}

func (s *store) takeLock() (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, nil
	}
	defer func() { _ = f.Close() }()
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return nil, err // the file system has no locks
	}
	holder := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &holder); err != nil || holder.Type == unix.F_UNLCK {
		return nil, &InUseError{Dir: s.dir}
	}
	return nil, &InUseError{Dir: s.dir, PID: int(holder.Pid)}
}

// load reads the state of the plegd before. An error is logged.
func (s *store) load() restored {
	r, err := new(bounded.Slot[restored]).Do(context.Background(), stateTimeout,
		func(context.Context) (restored, error) { return s.read() })
	if err != nil {
		s.log.Warn("starting without the state before the restart", zap.String("dir", s.dir), zap.Error(err))
		return restored{}
	}
	s.kubeletSeen.Store(r.kubeletSeen)
	return r
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
		return restored{}, err
	}
	if saved.Schema != stateSchema || saved.BootID != boot {
		return restored{}, nil // of an older plegd, or of another boot
	}
	now, mono := time.Now(), s.clock()
	if saved.Written < 0 || saved.Written > int64(mono) {
		return restored{}, fmt.Errorf("%s: it was not written in the time since boot", path)
	}
	moment := func(ns int64) time.Time {
		if ns < 0 || ns > int64(mono) {
			return time.Time{}
		}
		return now.Add(-(mono - time.Duration(ns)))
	}
	r := restored{kubeletSeen: saved.KubeletSeen, recent: saved.Recent, written: moment(saved.Written)}
	if lastSeen := moment(saved.LastSeen); !lastSeen.IsZero() {
		r.lastSeen, r.gap = lastSeen, mono-time.Duration(saved.Written)
		r.status = health.Status{
			Answered: saved.Answered, LastGood: moment(saved.LastGood), Restored: true,
			RuntimeReady: saved.RuntimeReady, NetworkReady: saved.NetworkReady,
		}
	}
	return r, nil
}

// save writes the state, in one piece or not at all.
func (s *store) save(f *health.Facts) error {
	boot, err := s.bootID()
	if err != nil {
		return err
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
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// keeper saves the state every saveEvery, at each change of the verdict, and at the end.
type keeper struct {
	store   *store
	facts   func() *health.Facts
	changed <-chan struct{}

	saves  bounded.Slot[struct{}]
	last   atomic.Pointer[health.Source] // nil before the first save
	logged logging.OnChange[string]      // the last error
}

// Source reports whether the state directory can be written; ok is false before the
// first save.
func (k *keeper) Source() (s health.Source, ok bool) {
	if p := k.last.Load(); p != nil {
		return *p, true
	}
	return s, false
}

// String returns the name of the task.
func (k *keeper) String() string { return "state" }

// Run saves until ctx ends, and then returns nil.
func (k *keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.changed:
		case <-ctx.Done():
			k.save(context.WithoutCancel(ctx), lastSaveTimeout)
			return nil
		}
		k.save(ctx, saveTimeout)
	}
}

// save saves once. While an earlier save hangs, the error stays that one's.
func (k *keeper) save(ctx context.Context, timeout time.Duration) {
	start := time.Now()
	_, err := k.saves.Do(ctx, timeout,
		func(context.Context) (struct{}, error) { return struct{}{}, k.store.save(k.facts()) })
	if errors.Is(err, bounded.ErrBusy) || ctx.Err() != nil {
		return
	}
	s := health.Source{Up: err == nil, At: time.Now(), Duration: time.Since(start)}
	if err != nil {
		s.Err = fmt.Sprintf("save the state in %s: %v", k.store.dir, err)
	}
	k.last.Store(&s)
	switch _, changed := k.logged.Set(s.Err); {
	case !changed:
	case err != nil:
		k.store.log.Warn("cannot save the state: plegd will start without it", zap.Error(err))
	default:
		k.store.log.Info("the state directory can be written again", zap.String("dir", k.store.dir))
	}
}
