package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/ledger"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/statedir"
	"github.com/plegd/plegd/internal/view"
)

// The state survives a restart of plegd within one boot. It is written without a sync:
// a file that a crash of the node loses would be of another boot anyway.
const (
	stateFile     = "last-seen.json"
	maxStateBytes = 64 << 10

	saveEvery = 30 * time.Second
	// faultSaveEvery is the time between two saves while a fault stands: a plegd that is killed continues with it.
	faultSaveEvery = 2 * time.Second
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
// processes of one boot share and no clock step moves; 0 means never.
type savedState struct {
	BootID      string           `json:"boot_id"`
	Written     int64            `json:"written_monotonic_ns"`
	LastSeen    int64            `json:"last_seen_monotonic_ns"`
	LastGood    int64            `json:"last_good_status_monotonic_ns"`
	Status      facts.Status     `json:"status"`
	KubeletSeen bool             `json:"kubelet_seen"`                // the kubelet's healthz has answered in this boot
	Recent      []view.RelistBin `json:"recent"`                      // the bins of the page's plot, the last of which is of Written
	Owed        map[string]int64 `json:"owed_monotonic_ns,omitempty"` // since when, by the ledger's keys
	Ledger      ledger.Memory    `json:"ledger"`                      // by the wall clock, as Condition
	// Condition is what stood at Written, which was Wall by the wall clock of its times.
	Condition *condition `json:"condition,omitzero"`
	Wall      time.Time  `json:"wall,omitzero"`
}

// restored is the state of the plegd before.
type restored struct {
	savedState

	written, lastSeen time.Time
	owed              map[string]time.Time
	memory            ledger.Memory
	gap               time.Duration // between its last save and the start of this plegd
	condition         *condition    // what stood then, nil where that is too long ago
}

// errInUse is returned for a state directory that another plegd uses.
var errInUse = errors.New("uses it")

// store keeps the state in a directory: it saves every saveEvery, at each change of the
// verdict, and at the end. No call waits for a disk that hangs.
type store struct {
	dir, procfs string
	log         *zap.Logger
	clock       func() time.Duration // CLOCK_MONOTONIC
	changed     <-chan struct{}
	facts       func() *facts.Facts
	recent      func() []view.RelistBin
	condition   func() *condition           // what stands now; nil before the first judgement
	owed        func() map[string]time.Time // by the ledger's keys
	memory      func() ledger.Memory

	locked      *os.File // closing it releases the lock
	kubeletSeen bool     // once set it stays
	saves       bounded.Slot[struct{}]
	last        atomic.Pointer[facts.Source] // nil before the first save
}

func monotonic() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

// suspended returns for how long the node has been suspended since its boot: only CLOCK_BOOTTIME counts that.
func suspended() time.Duration {
	running := monotonic()
	return max(0, readClock(unix.CLOCK_BOOTTIME)-running)
}

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // fails only for an unknown clock
	return time.Duration(ts.Nano())
}

func (s *store) bootID() (string, error) {
	b, err := proc.ReadFile(s.procfs, "sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// open locks the directory and reads the state of the plegd before. It returns errInUse
// if another plegd has the directory; any other error is logged.
func (s *store) open() (restored, error) {
	r, err := new(bounded.Slot[restored]).Do(context.Background(), stateTimeout,
		func(context.Context) (restored, error) {
			if err := s.lock(); errors.Is(err, errInUse) {
				return restored{}, err
			}
			return s.read()
		})
	if errors.Is(err, errInUse) {
		return r, err
	}
	if err != nil {
		s.log.Warn("starting without the state before the restart", zap.String("dir", s.dir), zap.Error(err))
	}
	s.kubeletSeen = r.KubeletSeen
	return r, nil
}

func (s *store) lock() error {
	root, err := statedir.Make(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		s.locked = f // on a file system without locks too
		return nil
	}
	defer func() { _ = f.Close() }()
	holder := "another plegd, in another pid namespace,"
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err == nil && lock.Pid > 0 {
		holder = fmt.Sprintf("plegd with pid %d", lock.Pid)
	}
	return fmt.Errorf("--state-dir: %s: %s %w: want a directory of its own for each plegd", s.dir, holder, errInUse)
}

func (s *store) read() (r restored, err error) {
	root, err := statedir.Open(s.dir)
	if err != nil {
		return r, err
	}
	defer func() { _ = root.Close() }()
	b, err := statedir.Read(root, stateFile, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil // the first start
	}
	if err != nil {
		return r, err
	}
	var saved savedState
	if err := json.Unmarshal(b, &saved); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(s.dir, stateFile), err)
	}
	boot, err := s.bootID()
	if err != nil || saved.BootID != boot {
		return r, err // of another boot
	}
	return saved.restore(time.Now(), s.clock()), nil
}

// restore returns the state at wall, which is mono on CLOCK_MONOTONIC.
func (s *savedState) restore(wall time.Time, mono time.Duration) restored {
	moment := func(ns int64) time.Time {
		if ns <= 0 || ns > int64(mono) {
			return time.Time{}
		}
		return wall.Add(time.Duration(ns) - mono)
	}
	r := restored{savedState: *s, written: moment(s.Written), lastSeen: moment(s.LastSeen)}
	if r.written.IsZero() {
		return restored{}
	}
	r.owed = map[string]time.Time{}
	for key, begun := range s.Owed {
		r.owed[key] = moment(begun)
	}
	translate := sinceSet(wall, r.written.Sub(s.Wall))
	r.memory = s.Ledger
	for _, t := range r.memory.Times() {
		*t = translate(*t)
	}
	if r.lastSeen.IsZero() {
		r.Status = facts.Status{}
		return r
	}
	r.Status.LastGood = moment(s.LastGood)
	r.Status.Restored = true
	r.gap = mono - time.Duration(s.Written)
	if s.Condition != nil && r.gap <= resumeWithin {
		r.condition = s.Condition.translated(translate)
	}
	return r
}

// clockSet is the least change of the wall clock that counts as one: time passes between two readings.
const clockSet = 100 * time.Millisecond

// sinceSet returns a function that gives times of the wall clock before it was set their monotonic readings.
func sinceSet(wall time.Time, change time.Duration) func(time.Time) time.Time {
	if change.Abs() < clockSet {
		change = 0
	}
	return func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return wall.Add(t.Add(change).Sub(wall.Round(0)))
	}
}

// save writes the state, in one piece or not at all.
func (s *store) save() error {
	f := s.facts()
	boot, err := s.bootID()
	if err != nil {
		return err
	}
	wall := time.Now()
	mono := s.clock()
	moment := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return int64(mono - wall.Sub(t))
	}
	s.kubeletSeen = s.kubeletSeen || f.Evidence.Kubelet != nil && f.Evidence.Kubelet.Seen
	owed := map[string]int64{}
	for key, begun := range s.owed() {
		owed[key] = moment(begun)
	}
	state := savedState{
		Owed:   owed,
		BootID: boot, Written: int64(mono), LastSeen: moment(facts.LastSeen(f)), LastGood: moment(f.Status.LastGood),
		Status: facts.Status{
			Answered: f.Status.Answered, RuntimeReady: f.Status.RuntimeReady, NetworkReady: f.Status.NetworkReady,
		},
		KubeletSeen: s.kubeletSeen, Recent: s.recent(),
	}
	state.Wall = wall.Round(0).UTC()
	state.Ledger = s.memory()
	for _, t := range state.Ledger.Times() {
		*t = facts.Wall(wall, *t)
	}
	if c := s.condition(); c != nil {
		state.Condition = c.translated(func(t time.Time) time.Time { return facts.Wall(wall, t) })
	}
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	root, err := statedir.Make(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return statedir.Write(root, stateFile, b, false)
}

// Source reports whether the state directory can be written; ok is false before the
// first save.
func (s *store) Source() (state facts.Source, ok bool) {
	if p := s.last.Load(); p != nil {
		return *p, true
	}
	return state, false
}

// Run saves until ctx ends, and then returns nil.
func (s *store) Run(ctx context.Context) error {
	timer := time.NewTimer(s.saveInterval())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
			s.keep(context.WithoutCancel(ctx), lastSaveTimeout)
			return nil
		}
		s.keep(ctx, saveTimeout)
		timer.Reset(s.saveInterval())
	}
}

// saveInterval is the time until the next save. The begin of a fault is a change, which is saved
// at once.
func (s *store) saveInterval() time.Duration {
	if s.condition().faulty() {
		return faultSaveEvery
	}
	return saveEvery
}

// keep saves once. While an earlier save hangs, the error stays that one's.
func (s *store) keep(ctx context.Context, timeout time.Duration) {
	start := time.Now()
	_, err := s.saves.Do(ctx, timeout, func(context.Context) (struct{}, error) { return struct{}{}, s.save() })
	if errors.Is(err, bounded.ErrBusy) || ctx.Err() != nil {
		return
	}
	state := facts.Source{Up: err == nil, At: time.Now(), Duration: time.Since(start)}
	if err != nil {
		state.Err = fmt.Sprintf("cannot save the state in %s: %v", s.dir, err)
	}
	s.last.Store(&state)
}
