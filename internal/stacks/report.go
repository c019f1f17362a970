package stacks

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/plain"
)

const (
	maxLocks    = 16 // in a report
	maxRequests = 64
)

// Report is the result of an analysis.
type Report struct {
	Goroutines int  `json:"goroutines"`
	Truncated  bool `json:"truncated"` // the dump exceeds MaxBytes, and its end was not read
	// Locks are the mutexes that goroutines wait for, those with most waiters first.
	Locks []Lock `json:"locks"`
	// Requests are those from outside, the oldest first, without subscriptions.
	Requests []Request `json:"requests"`
	// MoreLocks and MoreRequests count those that are left out.
	MoreLocks    int `json:"more_locks,omitempty"`
	MoreRequests int `json:"more_requests,omitempty"`
}

// Lock is a mutex that goroutines wait for.
type Lock struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // of the mutex, where the dump shows it
	Waiters int    `json:"waiters"`
	// Requests counts the waiters by the request that they serve; "internal" for none.
	Requests      map[string]int `json:"requests"`
	OldestSeconds float64        `json:"oldest_seconds"` // in whole minutes
	// Holder is nil where the dump proves none; Unproven is why.
	Holder   *Holder `json:"holder"`
	Unproven string  `json:"unproven,omitempty"`
}

// Holder is the goroutine that holds a lock.
type Holder struct {
	Goroutine int `json:"goroutine"`
	// Request is the request that it serves, "" for none.
	Request string `json:"request,omitempty"`
	// Function is where it has the lock.
	Function      string  `json:"function"`
	WaitedSeconds float64 `json:"waited_seconds"` // in its present wait, in whole minutes
	Wait          string  `json:"wait"`
	Evidence      string  `json:"evidence"`
}

// Request is a request from outside.
type Request struct {
	Name          string  `json:"name"`
	Goroutine     int     `json:"goroutine"`
	WaitedSeconds float64 `json:"waited_seconds"` // in its present wait, in whole minutes
	Wait          string  `json:"wait"`
}

// Analyse returns the contended locks with their holders, and the requests by age.
func Analyse(d *Dump) *Report {
	r := &Report{Goroutines: len(d.Goroutines), Truncated: d.Truncated, Locks: []Lock{}, Requests: []Request{}}
	lockWords := map[int]string{} // of a waiter, by goroutine
	groups := d.groups()
	r.MoreLocks = max(0, len(groups)-maxLocks)
	var holders []*candidate
	for _, l := range groups[:min(len(groups), maxLocks)] { // each one is a pass over all goroutines
		holds, unproven := d.holder(l)
		holders = append(holders, holds)
		r.Locks = append(r.Locks, d.lock(l, unproven))
		words := d.lockWords(l, holds)
		for i := range l.waiters {
			lockWords[l.waiters[i].goroutine.ID] = words
		}
	}
	for i, holds := range holders {
		if holds != nil {
			r.Locks[i].Holder = d.describe(holds, lockWords)
		}
	}
	r.Requests = d.requests(lockWords)
	r.MoreRequests = max(0, len(r.Requests)-maxRequests)
	r.Requests = r.Requests[:min(len(r.Requests), maxRequests)]
	return r
}

func (d *Dump) lock(l *lockGroup, unproven string) Lock {
	out := Lock{
		Name: plain.Text(l.name()), Waiters: len(l.waiters), Requests: map[string]int{},
		OldestSeconds: l.oldest.Seconds(), Unproven: plain.Text(unproven),
	}
	if l.first().mutex != 0 {
		out.Address = fmt.Sprintf("%#x", l.first().mutex)
	}
	for i := range l.waiters {
		out.Requests[plain.Text(cmp.Or(d.requestOf(l.waiters[i].goroutine), "internal"))]++
	}
	return out
}

// lockWords describes the wait for a lock.
func (d *Dump) lockWords(l *lockGroup, holds *candidate) string {
	text := "waits for " + l.name()
	if holds == nil {
		return text
	}
	return text + ", held by " + cmp.Or(d.requestOf(holds.goroutine), holds.frame.Short())
}

func (d *Dump) describe(c *candidate, lockWords map[int]string) *Holder {
	return &Holder{
		Goroutine: c.goroutine.ID, Function: plain.Text(c.frame.Short()), Request: plain.Text(d.requestOf(c.goroutine)), WaitedSeconds: c.goroutine.Waited.Seconds(),
		Wait: plain.Text(cmp.Or(lockWords[c.goroutine.ID], c.goroutine.wait())), Evidence: plain.Text(c.evidence),
	}
}

func (d *Dump) requests(lockWords map[int]string) []Request {
	out := []Request{}
	for i := range d.Goroutines {
		g := &d.Goroutines[i]
		name := g.request()
		if name == "" || subscriptions[name] {
			continue
		}
		out = append(out, Request{
			Name: plain.Text(name), Goroutine: g.ID, WaitedSeconds: g.Waited.Seconds(),
			Wait: plain.Text(cmp.Or(lockWords[g.ID], g.wait())),
		})
	}
	slices.SortFunc(out, func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.WaitedSeconds, a.WaitedSeconds), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Goroutine, b.Goroutine))
	})
	return out
}

// String describes a request, such as "UpdateContainerResources for 12 min, waits for its
// call to a shim (Update)".
func (r Request) String() string {
	return fmt.Sprintf("%s for %s, %s", r.Name, age(seconds(r.WaitedSeconds)), r.Wait)
}

// name is the request that the holder serves, else the function in which it has the lock.
func (h Holder) name() string { return cmp.Or(h.Request, h.Function) }

// String describes a holder as String of Request does.
func (h Holder) String() string {
	return Request{Name: h.name(), WaitedSeconds: h.WaitedSeconds, Wait: h.Wait}.String()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d goroutines, %d requests from outside, %d contended locks\n",
		r.Goroutines, len(r.Requests)+r.MoreRequests, len(r.Locks)+r.MoreLocks)
	if r.Truncated {
		fmt.Fprintf(&b, "The dump is longer than %d MiB: the rest was not read.\n", MaxBytes>>20)
	}
	for i := range r.Locks {
		r.Locks[i].write(&b)
	}
	if r.MoreLocks > 0 {
		fmt.Fprintf(&b, "\n%d more locks are waited for.\n", r.MoreLocks)
	}
	if len(r.Requests) > 0 {
		fmt.Fprintf(&b, "\nRequests, the longest wait first:\n")
	}
	writeRequests(&b, r.Requests)
	if r.MoreRequests > 0 {
		fmt.Fprintf(&b, "  %d more\n", r.MoreRequests)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRequests writes a line for each request; equal ones that wait for the same share one.
func writeRequests(b *strings.Builder, requests []Request) {
	type kind struct{ name, wait string }
	counts := map[kind]int{}
	for _, r := range requests {
		counts[kind{name: r.Name, wait: r.Wait}]++
	}
	for _, r := range requests {
		n := counts[kind{name: r.Name, wait: r.Wait}]
		delete(counts, kind{name: r.Name, wait: r.Wait})
		switch {
		case n == 1:
			fmt.Fprintf(b, "  %s (goroutine %d)\n", r, r.Goroutine)
		case n > 1:
			fmt.Fprintf(b, "  %s (goroutine %d and %d more)\n", r, r.Goroutine, n-1)
		}
	}
}

func (l *Lock) write(b *strings.Builder) {
	var waiters []string
	for _, name := range slices.Sorted(maps.Keys(l.Requests)) {
		waiters = append(waiters, fmt.Sprintf("%s x%d", name, l.Requests[name]))
	}
	fmt.Fprintf(b, "\n%d wait for %s, the longest for %s: %s\n",
		l.Waiters, l.Name, age(seconds(l.OldestSeconds)), strings.Join(waiters, ", "))
	if l.Holder == nil {
		fmt.Fprintf(b, "  holder not proven: %s\n", l.Unproven)
		return
	}
	fmt.Fprintf(b, "  held by goroutine %d: %s\n  evidence: %s\n", l.Holder.Goroutine, l.Holder, l.Holder.Evidence)
}
