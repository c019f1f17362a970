package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// structBytes is the largest distance of a mutex from the begin of its struct.
	structBytes = 1 << 10
	// firstPointer is above every length and small number, and above the data of a program
	// that is not relocated.
	firstPointer = 1 << 32
	// ownerFrames is the number of frames in which the struct of a mutex is searched for.
	ownerFrames = 3
)

// lockWait is what a goroutine shows of the mutex for which it waits.
type lockWait struct {
	goroutine *Goroutine
	// mutex is its address, 0 where it is not shown.
	mutex uint64
	// caller is the function that locks it, at callerAt of the frames.
	caller   Frame
	callerAt int
	// owner is the address of the struct that contains it: the mutex itself where no other is
	// shown, 0 where neither is.
	owner uint64
	// ownerShown reports whether a frame has the owner.
	ownerShown bool
	// ownerType is the type of the owner where it is the caller's receiver, else "".
	ownerType string
}

// lockWait returns the mutex for which the goroutine waits; ok is false for none.
func (g *Goroutine) lockWait() (w lockWait, ok bool) {
	if g.State != "semacquire" && !strings.HasPrefix(g.State, "sync.") {
		return w, false
	}
	w.goroutine = g
	w.callerAt = slices.IndexFunc(g.Frames, func(f Frame) bool { return !isRuntime(f.Func) && !isLocker(f.Func) })
	if w.callerAt < 0 {
		return w, false
	}
	w.caller = g.Frames[w.callerAt]
	w.mutex, ok = mutexOf(g.Frames[:w.callerAt])
	if !ok {
		return w, false
	}
	if w.mutex != 0 {
		w.findOwner()
	} else {
		w.receiverAsOwner()
	}
	return w, true
}

// mutexOf returns the address of the mutex in whose functions frames are, 0 where it is not
// shown; ok is false where they are in none.
func mutexOf(frames []Frame) (address uint64, ok bool) {
	for _, f := range frames {
		if !isMutex(f.Func) {
			continue
		}
		ok = true
		if len(f.Args) > 0 && !f.Args[0].Stale {
			address = f.Args[0].Value
		}
	}
	return address, ok
}

// findOwner sets the struct in which the mutex lies: the nearest pointer below it that a
// frame of the caller's package has, else that which begins with it.
func (w *lockWait) findOwner() {
	w.searchOwner()
	w.ownerShown = w.owner != 0
	if w.owner == 0 && w.mutex >= firstPointer {
		w.owner = w.mutex
	}
}

func (w *lockWait) searchOwner() {
	frames := w.goroutine.Frames[w.callerAt:]
	for _, f := range frames[:min(ownerFrames, len(frames))] {
		if f.Package() != w.caller.Package() {
			return
		}
		for i, a := range f.Args {
			if a.Value < firstPointer || a.Value > w.mutex || w.mutex-a.Value >= structBytes || a.Value < w.owner {
				continue
			}
			w.owner = a.Value
			if i == 0 {
				w.ownerType = f.Receiver()
			}
		}
	}
}

// receiverAsOwner sets the owner of a mutex whose address is not shown: the receiver of a
// method that has no other argument that could contain it.
func (w *lockWait) receiverAsOwner() {
	f := w.caller
	if f.Receiver() == "" || f.Hidden || len(f.Args) == 0 || f.Args[0].Value < firstPointer {
		return
	}
	if slices.ContainsFunc(f.Args[1:], func(a Word) bool { return a.Value >= firstPointer }) {
		return
	}
	w.owner = f.Args[0].Value
	w.ownerShown = true
	w.ownerType = f.Receiver()
}

// isMutex reports whether a function belongs to a mutex of package sync.
func isMutex(name string) bool {
	return strings.Contains(name, "sync.(*Mutex).") || strings.Contains(name, "sync.(*RWMutex).")
}

// isRuntime reports whether a function belongs to the Go runtime or to package sync.
func isRuntime(name string) bool {
	for _, prefix := range []string{"sync.", "internal/sync.", "runtime.", "runtime/", "internal/runtime/", "internal/poll.runtime_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isLocker reports whether a function does nothing but lock.
func isLocker(name string) bool {
	method := name[strings.LastIndexByte(name, '.')+1:]
	return method == "Lock" || method == "RLock"
}

// lockGroup is a mutex with all goroutines that wait for it.
type lockGroup struct {
	key     string
	waiters []lockWait
	oldest  time.Duration
}

// first returns a waiter that shows the mutex and its owner, if one does.
func (l *lockGroup) first() *lockWait { return &l.waiters[0] }

// key tells two mutexes apart: by address, else by owner, else by the calling function.
func (w *lockWait) key() string {
	if w.mutex != 0 {
		return fmt.Sprintf("mutex %#x", w.mutex)
	}
	if w.owner != 0 {
		return w.ownerKey()
	}
	return "call in " + w.caller.Func
}

// rank is 1 where the owner is shown, else 0.
func (w *lockWait) rank() int {
	if w.ownerShown {
		return 1
	}
	return 0
}

func (w *lockWait) ownerKey() string { return fmt.Sprintf("%s %#x", w.ownerType, w.owner) }

// groups returns the mutexes that goroutines wait for, those with most waiters first.
func (d *Dump) groups() []*lockGroup {
	byKey := map[string]*lockGroup{}
	owners := map[string]string{} // the key of a mutex with an address, by its owner
	waits := d.lockWaits()
	for _, w := range waits {
		if w.mutex != 0 && w.ownerType != "" {
			owners[w.ownerKey()] = w.key()
		}
	}
	for _, w := range waits {
		key := w.key()
		if known := owners[key]; known != "" {
			key = known // RWMutex shows its address to writers only
		}
		g := byKey[key]
		if g == nil {
			g = &lockGroup{key: key}
			byKey[key] = g
		}
		g.waiters = append(g.waiters, w)
		g.oldest = max(g.oldest, w.goroutine.Waited)
	}
	var out []*lockGroup
	for _, g := range byKey {
		slices.SortStableFunc(g.waiters, func(a, b lockWait) int { // those that show most first
			return cmp.Or(cmp.Compare(b.mutex, a.mutex), cmp.Compare(b.rank(), a.rank()), cmp.Compare(a.goroutine.ID, b.goroutine.ID))
		})
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *lockGroup) int {
		return cmp.Or(cmp.Compare(len(b.waiters), len(a.waiters)), cmp.Compare(b.oldest, a.oldest), cmp.Compare(a.key, b.key))
	})
	return out
}

func (d *Dump) lockWaits() []lockWait {
	var out []lockWait
	for i := range d.Goroutines {
		if w, ok := d.Goroutines[i].lockWait(); ok {
			out = append(out, w)
		}
	}
	return out
}

// name is the name of a mutex for a reader.
func (l *lockGroup) name() string {
	w := l.first()
	if w.ownerType != "" {
		return "the lock of " + short(w.ownerType)
	}
	return "a lock in " + w.caller.Short()
}
