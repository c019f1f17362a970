package stacks

import (
	"fmt"
	"slices"
	"strings"
)

// candidate is a goroutine that may hold a mutex, and the frame that shows it.
type candidate struct {
	goroutine *Goroutine
	frame     Frame
	evidence  string
	// weak is why this frame proves nothing; "" for one that does.
	weak string
}

// holder returns the goroutine that holds a mutex. Where the dump does not prove one, it
// returns nil and the reason.
//
// A goroutine inside of the struct that contains the mutex, or in the locking function
// beyond the place where the others wait, holds it if no other goroutine is there, if it has
// waited for at least as long as the waiters, and if it does not idle there.
func (d *Dump) holder(l *lockGroup) (holds *candidate, unproven string) {
	w := l.first()
	if w.mutex == 0 && w.owner == 0 {
		return nil, "the dump does not show which mutex it is"
	}
	service := d.ownsGoroutines(w.ownerType, w.owner)
	if w.mutex == 0 && service {
		return nil, fmt.Sprintf("the mutex may belong to anything that %s reaches", short(w.ownerType))
	}
	found := d.candidates(l)
	if len(found) == 0 {
		return nil, "no goroutine shows that it holds it"
	}
	if len(found) > 1 {
		return nil, fmt.Sprintf("%d goroutines may hold it (%s)", len(found), goroutineList(found))
	}
	c := found[0]
	if c.weak != "" {
		return nil, fmt.Sprintf("goroutine %d may hold it (%s), but %s", c.goroutine.ID, c.frame.Short(), c.weak)
	}
	if service && c.frame.Func != w.caller.Func {
		return nil, fmt.Sprintf("goroutine %d may hold it (%s), but many work with that value", c.goroutine.ID, c.frame.Short())
	}
	if c.goroutine.Waited < l.oldest {
		return nil, fmt.Sprintf("goroutine %d may hold it (%s), but has waited for less time than the others",
			c.goroutine.ID, c.frame.Short())
	}
	return &c, ""
}

func goroutineList(found []candidate) string {
	const shown = 5
	var ids []string
	for _, c := range found[:min(len(found), shown)] {
		ids = append(ids, fmt.Sprint(c.goroutine.ID))
	}
	if len(found) > shown {
		ids = append(ids, "...")
	}
	return strings.Join(ids, ", ")
}

// ownsGoroutines reports whether a value runs goroutines of its own. That is a service with
// parts of their own locks: its pointer does not say which of them is meant.
func (d *Dump) ownsGoroutines(typ string, owner uint64) bool {
	return slices.ContainsFunc(d.Goroutines, func(g Goroutine) bool {
		if typ != "" && strings.HasPrefix(g.CreatedBy, typ+".") {
			return true
		}
		if owner == 0 || len(g.Frames) == 0 {
			return false
		}
		bottom := g.Frames[len(g.Frames)-1]
		return bottom.Receiver() != "" && bottom.hasWord(owner, true)
	})
}

// candidates returns the goroutines that may hold a mutex, one frame of each.
func (d *Dump) candidates(l *lockGroup) []candidate {
	waiting := map[int]*lockWait{}
	for i := range l.waiters {
		waiting[l.waiters[i].goroutine.ID] = &l.waiters[i]
	}
	var out []candidate
	for i := range d.Goroutines {
		g := &d.Goroutines[i]
		if w := waiting[g.ID]; w != nil {
			if c := w.itself(); c != nil {
				out = append(out, *c)
			}
			continue
		}
		if c := l.inside(g); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// inside returns the strongest frame by which a goroutine may hold the mutex, nil for none.
func (l *lockGroup) inside(g *Goroutine) *candidate {
	var best *candidate
	for i, f := range g.Frames {
		evidence, weak := l.shows(f)
		if evidence == "" || g.forwards(i, l.first().owner) {
			continue
		}
		if weak == "" {
			weak = g.idles(i)
		}
		if best == nil || best.weak != "" && weak == "" {
			best = &candidate{goroutine: g, frame: f, evidence: evidence, weak: weak}
		}
	}
	return best
}

// forwards reports whether the frame number i, whose arguments are hidden, only calls a method of the
// same type, and that with another value than the owner: as RLock of a lock file calls its lock.
func (g *Goroutine) forwards(i int, owner uint64) bool {
	f := &g.Frames[i]
	if i == 0 || len(f.Args) > 0 || !f.Hidden || owner == 0 {
		return false
	}
	inner := &g.Frames[i-1]
	sameType := f.Receiver() != "" && inner.Receiver() == f.Receiver()
	return sameType && len(inner.Args) > 0 && !inner.Args[0].Stale && inner.Args[0].Value != owner
}

// shows returns how a frame shows that its goroutine may hold the mutex, "" if it does not,
// and why that is no proof.
func (l *lockGroup) shows(f Frame) (evidence, weak string) {
	w := l.first()
	if w.owner != 0 {
		return l.atOwner(f)
	}
	if f.Func == w.caller.Func {
		return l.beyond(f)
	}
	return "", ""
}

// atOwner judges a frame for a mutex whose owner is known.
func (l *lockGroup) atOwner(f Frame) (evidence, weak string) {
	w := l.first()
	sameFunc := f.Func == w.caller.Func
	sameType := w.ownerType != "" && f.Receiver() == w.ownerType
	if (sameType || sameFunc) && f.Hidden && len(f.Args) == 0 {
		return "it is in " + f.Short(), "the dump hides the arguments"
	}
	if w.mutex == 0 && !sameType || f.Package() != w.caller.Package() {
		return "", ""
	}
	if !f.hasWord(w.owner, true) {
		return l.near(f)
	}
	evidence = fmt.Sprintf("it alone is in %s with the same value %#x", f.Short(), w.owner)
	if !f.hasWord(w.owner, false) {
		return evidence, "the dump marks that argument as possibly out of date"
	}
	if sameFunc && f.Offset < w.caller.Offset {
		return evidence, "it has not come to the place where the others wait"
	}
	return evidence, ""
}

// near judges a method of a value that begins shortly below the mutex. Nothing shows how large
// the value is.
func (l *lockGroup) near(f Frame) (evidence, weak string) {
	mutex := l.first().mutex
	if l.first().ownerShown || len(f.Args) == 0 || f.Receiver() == "" {
		return "", ""
	}
	value := f.Args[0].Value
	if value > mutex || mutex-value >= structBytes {
		return "", ""
	}
	return "it is in " + f.Short(), "the dump does not show that the lock belongs to that value"
}

// beyond judges a frame of the locking function for a mutex of which only the address is
// known, as of a global one.
func (l *lockGroup) beyond(f Frame) (evidence, weak string) {
	evidence = fmt.Sprintf("it alone is in %s beyond the place where the others wait", f.Short())
	for i := range l.waiters {
		caller := l.waiters[i].caller
		if caller.Func != f.Func {
			return evidence, "others wait for it in " + caller.Short()
		}
		if caller.Offset == 0 || f.Offset <= caller.Offset {
			return evidence, "it has not come to the place where the others wait"
		}
	}
	return evidence, ""
}

// idles returns why a goroutine may be in its frame number i without any lock: it runs, so
// that the picture changes, or it idles in a loop of that function. "" for a wait below it.
func (g *Goroutine) idles(i int) string {
	switch g.State {
	case "running", "runnable":
		return "it is running"
	case "select", "chan receive", "sleep", "sync.Cond.Wait":
		below := slices.ContainsFunc(g.Frames[:i], func(f Frame) bool { return !isRuntime(f.Func) && f.Func != "time.Sleep" })
		if !below {
			return "it may idle there"
		}
	}
	return ""
}

// itself returns the frame by which a waiter may hold the mutex that it waits for: it is
// inside of the same value, and has come back to it through another package.
func (w *lockWait) itself() *candidate {
	left := false
	for _, f := range w.goroutine.Frames[w.callerAt+1:] {
		if f.Package() != w.caller.Package() {
			left = true
			continue
		}
		if left && w.owner != 0 && f.hasWord(w.owner, true) {
			return &candidate{goroutine: w.goroutine, frame: f, weak: "it may wait for itself"}
		}
	}
	return nil
}
