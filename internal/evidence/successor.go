package evidence

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// For successorGrace after a process was last seen its successor is looked for every
	// successorInterval: one that cannot start lives for milliseconds. Between two looks there are
	// successorRest times the duration of the last one, on a node with very many processes.
	successorGrace    = 30 * time.Second
	successorInterval = 20 * time.Millisecond
	successorRest     = 9
)

// predecessor is a process that may end, as far as it shows which process follows it.
type predecessor struct {
	hop    *hop
	comm   string
	place  place         // where it was started
	args   []string      // its arguments
	seenUp time.Duration // the time since boot when it was last seen
}

// place is where a process runs: its /proc/PID/cgroup and its mount namespace, "" for one that could not
// be read, and what could not.
type place struct {
	cgroup, mounts string
	unread         proc.Unread
}

func (h *hop) placeOf(pid int) place {
	out := place{unread: proc.Unread{}}
	cgroup, err := h.cgroupOf(pid)
	out.unread.Add("cgroup", err)
	out.cgroup = cgroup
	out.mounts, err = proc.MountNamespace(h.procfs, pid)
	out.unread.Add("mount namespace", err)
	return out
}

// cgroupOf returns the /proc/PID/cgroup of a process.
func (h *hop) cgroupOf(pid int) (string, error) {
	b, err := proc.ReadFile(proc.Path(h.procfs, pid, "cgroup"))
	return string(b), err
}

// isNewer reports whether a process was started after the predecessor was last seen.
func (p *predecessor) isNewer(candidate proc.Process) bool {
	return proc.TicksToDuration(candidate.Start+1) >= p.seenUp
}

// successors are the processes that are started in the place of one that has ended. A goroutine looks
// for them, since each may have ended at the next sample.
type successors struct {
	predecessor

	mu       sync.Mutex // of the following fields
	watching bool       // the goroutine runs
	until    time.Time  // when it ends
	older    map[int]bool
	known    map[proc.ID]bool
	found    []proc.Process // and have not been taken as ended
	unread   proc.Unread    // by the last look
}

// newSuccessors returns the successors of a process, of which none was looked for.
func newSuccessors(p predecessor) *successors {
	return &successors{
		predecessor: p,
		until:       time.Now().Add(successorGrace),
		older:       map[int]bool{},
		known:       map[proc.ID]bool{},
	}
}

// watch looks for successors from now on, until end is called or none was found for successorGrace.
func (s *successors) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching || !time.Now().Before(s.until) {
		return
	}
	s.watching = true
	go func() {
		_ = bounded.Recovered(func() error {
			for s.goesOn() {
				took := s.look()
				time.Sleep(max(successorInterval, successorRest*took))
			}
			return nil
		})
	}()
}

// goesOn reports whether the goroutine is to look again.
func (s *successors) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching = time.Now().Before(s.until)
	return s.watching
}

// look adds the processes that have been started in the predecessor's place since the last look, and
// returns how long it took.
func (s *successors) look() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := time.Now()
	s.unread = proc.Unread{}
	pids, err := proc.PIDs(s.hop.procfs)
	s.unread.Add("processes", err)
	for _, pid := range pids {
		if s.older[pid] {
			continue
		}
		p, err := s.hop.table.Alive(pid)
		switch {
		case err != nil:
		case !s.isNewer(p):
			s.older[pid] = true
		case !s.known[p.ID()] && s.isFollowedBy(p):
			s.known[p.ID()] = true
			s.found = append(s.found, p)
			s.until = begun.Add(successorGrace)
		}
	}
	return time.Since(begun)
}

// newest returns the newest of those found that is alive, zero for none, and what the last look could not
// read: there may be another one.
func (s *successors) newest() (best proc.Process, unread proc.Unread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.found {
		current, err := s.hop.table.Alive(p.PID)
		if err == nil && current.ID() == p.ID() && p.Start >= best.Start {
			best = current
		}
	}
	return best, s.unread
}

// take returns those that were found and have ended since the last call; nil receiver for none.
func (s *successors) take() (ended []proc.Process) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var alive []proc.Process
	for _, p := range s.found {
		current, err := s.hop.table.Alive(p.PID)
		if err == nil && current.ID() == p.ID() {
			alive = append(alive, p)
		} else {
			ended = append(ended, p)
		}
	}
	s.found = alive
	return ended
}

// end ends the goroutine.
func (s *successors) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

// isFollowedBy reports whether a newer process is in the place of the predecessor, and none that a
// successor has forked and that has yet to begin another program.
func (s *successors) isFollowedBy(p proc.Process) bool {
	if p.Comm != s.comm || !s.isInItsPlace(p) {
		return false
	}
	parent, err := s.hop.table.Alive(p.PPID)
	return err != nil || parent.Comm != p.Comm || !s.isNewer(parent)
}

// isInItsPlace reports whether a process of the predecessor's name is in its service, or has its
// arguments in its cgroup or its mounts: without a service manager other runtimes may be in the same
// cgroup. What could not be read of these may be why it is not known to be.
func (s *successors) isInItsPlace(p proc.Process) bool {
	found := s.hop.placeOf(p.PID)
	isSameCgroup := s.place.cgroup != "" && found.cgroup == s.place.cgroup
	if isSameCgroup && proc.ParseCgroups([]byte(found.cgroup)).Service() != "" {
		return true
	}
	args := s.hop.table.Args(p.ID())
	isSameCommand := len(args) > 1 && len(s.args) > 1 && slices.Equal(args[1:], s.args[1:])
	isSameMounts := s.place.mounts != "" && found.mounts == s.place.mounts
	if isSameCommand && (isSameCgroup || isSameMounts) {
		return true
	}
	maps.Copy(s.unread, s.place.unread)
	maps.Copy(s.unread, found.unread)
	return false
}

// invocationOf returns the id of the invocation of a systemd unit, which is another one after each
// start; "" where it is not known.
func (h *hop) invocationOf(unit string) string {
	if unit == "" {
		return ""
	}
	link := filepath.Join(proc.Path(h.procfs, 1, "root"), "run/systemd/units", "invocation:"+unit)
	id, _ := proc.Link(link)
	return id
}
