//go:build !race

package stacks

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// store is a value with locks, such as runtimes have many.
type store struct {
	mu    sync.Mutex
	rw    sync.RWMutex
	once  sync.Once
	calls int
}

//go:noinline
func (s *store) get() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

//go:noinline
func (s *store) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.calls++
}

// updateAfter does something before it takes the lock.
//
//go:noinline
func (s *store) updateAfter(f func()) {
	f()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

// loop waits on a channel as a background task does.
//
//go:noinline
func (s *store) loop(c chan struct{}) {
	<-c
	s.calls++
}

// serve starts a background task.
//
//go:noinline
func (s *store) serve(c chan struct{}) {
	go func() { <-c }()
	s.calls++
}

//go:noinline
func (s *store) size() {
	s.rw.RLock()
	defer s.rw.RUnlock()
	runtime.KeepAlive(s)
}

//go:noinline
func (s *store) read(f func()) {
	s.rw.RLock()
	defer s.rw.RUnlock()
	f()
	runtime.KeepAlive(s)
}

//go:noinline
func (s *store) write(f func()) {
	s.rw.Lock()
	defer s.rw.Unlock()
	f()
	s.calls++
}

//go:noinline
func (s *store) load(f func()) {
	s.once.Do(f)
	s.calls++
}

// service works with stores that it gets as arguments, as runtimes do with containers.
type service struct{ calls int }

//go:noinline
func (r *service) update(s *store, f func()) {
	s.rw.Lock()
	defer s.rw.Unlock()
	f()
	r.calls++
	runtime.KeepAlive(s)
}

//go:noinline
func (r *service) status(s *store) {
	s.rw.Lock()
	defer s.rw.Unlock()
	r.calls++
	runtime.KeepAlive(s)
}

var global sync.Mutex

//go:noinline
func logLine(f func()) {
	global.Lock()
	defer global.Unlock()
	f()
}

// scene starts goroutines that wait.
type scene struct {
	*store
	*testing.T

	self, started int
	holder        atomic.Int64 // the goroutine in hold
	release       chan struct{}
}

// run starts a goroutine and returns when it waits.
func (s *scene) run(f func()) {
	s.started++
	go f()
	s.settled()
}

// block waits until the test ends.
func (s *scene) block() { <-s.release }

// hold waits while it holds the lock of the scene.
func (s *scene) hold() {
	s.holder.Store(int64(goroutineID()))
	<-s.release
}

func nothing() {}

func goroutineID() int {
	d, _ := Parse(stack(false))
	return d.Goroutines[0].ID
}

func stack(all bool) []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, all)]
}

// waits matches the states in which a goroutine of a scene waits for another one; not those in which it waits for the
// garbage collector or was preempted.
var waits = regexp.MustCompile(`^(chan receive|semacquire|sync\.)`)

// settled returns a dump of the goroutines of the scene once all of them wait.
func (s *scene) settled() *Dump {
	s.Helper()
	for {
		d, err := Parse(stack(true))
		must.Do(s, err)
		d.Goroutines = slices.DeleteFunc(d.Goroutines, func(g Goroutine) bool { return g.Creator != s.self })
		waiting := 0
		for _, g := range d.Goroutines {
			if waits.MatchString(g.State) {
				waiting++
			}
		}
		if waiting == s.started {
			return d
		}
		runtime.Gosched()
	}
}

// TestLive analyses dumps of this process: of each scene the holder is known.
func TestLive(t *testing.T) {
	for name, tt := range map[string]struct {
		start func(s *scene)
		says  string // where no holder is proven
	}{
		"a method that calls back": {start: func(s *scene) {
			s.run(func() { s.update(s.hold) })
			s.run(func() { s.get() })
		}},
		"another value of the type is busy too": {start: func(s *scene) {
			s.run(func() { new(store).update(s.block) })
			s.run(func() { s.update(s.hold) })
			s.run(func() { s.update(nothing) })
		}},
		"a reader beside a writer": {start: func(s *scene) {
			s.run(func() { s.read(s.hold) })
			s.run(func() { s.write(nothing) })
		}},
		"a writer beside readers": {start: func(s *scene) {
			s.run(func() { s.write(s.hold) })
			s.run(func() { s.size() })
		}},
		"once": {start: func(s *scene) {
			s.run(func() { s.load(s.hold) })
			s.run(func() { s.load(nothing) })
		}},
		"a global lock": {start: func(s *scene) {
			s.run(func() { logLine(s.hold) })
			s.run(func() { logLine(nothing) })
		}},
		"the value is an argument, beside another one's": {start: func(s *scene) {
			r := new(service)
			other := new(store)
			s.run(func() { r.update(other, s.block) })
			s.run(func() { r.update(s.store, s.hold) })
			s.run(func() { r.status(s.store) })
		}},
		"never unlocked": {says: "no goroutine shows", start: func(s *scene) {
			s.mu.Lock()
			s.run(func() { s.get() })
		}},
		"never unlocked, one is before the lock": {says: "has not come to the place", start: func(s *scene) {
			s.mu.Lock()
			s.run(func() { s.updateAfter(s.block) })
			s.run(func() { s.updateAfter(nothing) })
		}},
		"never unlocked, one idles": {says: "may idle there", start: func(s *scene) {
			s.mu.Lock()
			s.run(func() { s.loop(s.release) })
			s.run(func() { s.get() })
		}},
		"two are inside": {says: "2 goroutines may hold it", start: func(s *scene) {
			s.run(func() { s.update(s.hold) })
			s.run(func() { s.updateAfter(s.block) })
			s.run(func() { s.get() })
		}},
		"a service, whose parts have locks": {says: "may belong to anything", start: func(s *scene) {
			s.run(func() { s.write(s.hold) })
			s.run(func() { s.size() })
			s.started++
			go s.loop(s.release)
			s.settled()
		}},
		"a service, by the address of its lock": {says: "many work with that value", start: func(s *scene) {
			s.run(func() { s.update(s.hold) })
			s.run(func() { s.updateAfter(nothing) })
			s.started++
			s.serve(s.release)
			s.settled()
		}},
		"recursion": {says: "may wait for itself", start: func(s *scene) {
			s.run(func() { s.update(sync.OnceFunc(func() { s.get() })) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{store: new(store), T: t, self: goroutineID(), release: make(chan struct{})}
			tt.start(s)
			report := Analyse(s.settled())
			if tt.says == "" || strings.HasPrefix(tt.says, "2") {
				defer close(s.release)
			}
			var text strings.Builder
			must.Do(t, report.WriteText(&text))
			must.Equal(t, len(report.Locks), 1, "locks: %s", &text)
			holder := report.Locks[0].Holder
			if tt.says != "" {
				if holder != nil || !strings.Contains(report.Locks[0].Unproven, tt.says) {
					t.Errorf("want no holder, %q:\n%s", tt.says, &text)
				}
				return
			}
			if holder == nil || holder.Goroutine != int(s.holder.Load()) {
				t.Errorf("goroutine %d holds it:\n%s", s.holder.Load(), &text)
			}
		})
	}
}
