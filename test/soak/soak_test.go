//go:build e2e

package soak

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	// near is how close to an action a degraded interval must lie.
	near = 3 * time.Second
	// quiet is the time between two actions, longer than near: an interval then
	// belongs to one of them.
	quiet = 5 * time.Second
)

// node is a containerd with pods, and a plegd that watches it.
type node struct {
	t          *testing.T
	containerd *lab.Containerd
	cri        *lab.CRI
	pods       []*lab.Pod
	began      time.Time

	mu   sync.Mutex
	done []made
	busy bool
}

// made is an action that was made.
type made struct {
	name       string
	allowed    []string
	start, end time.Time // end is zero while it is under way
}

// foreign is what somebody else does to the machine that the test runs on.
var foreign = made{name: "something else keeps the cores busy", allowed: slow}

// interval is a time in which plegd did not say healthy.
type interval struct {
	start, end time.Time
	states     []string
	reasons    []string
}

func TestSoak(t *testing.T) {
	whole := 30 * time.Minute
	if s := os.Getenv("DURATION"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Minute {
			t.Fatalf("DURATION is %q: want a time from 1m, as in 30m", s)
		}
		whole = d
	}
	n := &node{t: t}
	n.containerd = lab.NewContainerd(t, lab.ContainerdOptions{})
	n.cri = n.containerd.CRI(t)
	n.pods = n.cri.RunPods(10, 1)
	plegd := lab.NewPlegd(t, n.containerd.Socket, lab.PlegdOptions{Flags: []string{"--log.level=info"}})
	plegd.AwaitState(time.Minute, string(health.StateHealthy))
	n.began = time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	var seen []interval
	go func() {
		defer close(stopped)
		seen = n.watch(plegd, stop)
	}()

	n.live(whole)
	time.Sleep(quiet)
	close(stop)
	<-stopped
	n.judge(seen)
}

// live makes the actions.
func (n *node) live(whole time.Duration) {
	var again []action
	due := map[string]time.Time{}
	for _, a := range actions {
		if a.at == 0 {
			again = append(again, a)
		} else {
			due[a.name] = n.began.Add(time.Duration(a.at * float64(whole)))
		}
	}
	for i := 0; time.Since(n.began) < whole || len(due) > 0; i++ {
		next := again[i%len(again)]
		for _, a := range actions {
			if at, waits := due[a.name]; waits && time.Now().After(at) {
				next = a
				delete(due, a.name)
				break
			}
		}
		n.log(made{name: next.name, allowed: next.allowed, start: time.Now()})
		next.do(n)
		n.finish(next.name)
		time.Sleep(quiet)
	}
}

// log notes that an action begins.
func (n *node) log(m made) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = append(n.done, m)
	n.t.Logf("%7.1fs %s", m.start.Sub(n.began).Seconds(), m.name)
}

// finish notes that it has ended.
func (n *node) finish(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.done {
		if m := &n.done[i]; m.name == name && m.end.IsZero() {
			m.end = time.Now()
			n.t.Logf("%7.1fs %s: done", m.end.Sub(n.began).Seconds(), name)
		}
	}
}

// watch looks at plegd four times a second and in its log, and returns the
// intervals in which it did not say healthy. It notes what others do to the
// machine, too.
func (n *node) watch(p *lab.Plegd, stop <-chan struct{}) []interval {
	var all []interval
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	read, open := 0, false
	take := func(at time.Time, state string, reasons []string) {
		if state == string(health.StateHealthy) {
			if open {
				all[len(all)-1].end = at
			}
			open = false
			return
		}
		if !open {
			all = append(all, interval{start: at})
			open = true
		}
		i := &all[len(all)-1]
		i.end = at
		if !slices.Contains(i.states, state) {
			i.states = append(i.states, state)
		}
		for _, r := range reasons {
			if r != "" && !slices.Contains(i.reasons, r) {
				i.reasons = append(i.reasons, r)
			}
		}
	}
	for {
		for _, l := range p.Log.Since(read) {
			read++
			if l.Message() == "verdict changed" {
				take(l.At, l.String("state"), []string{l.String("reason")})
			}
		}
		if s, err := p.Status(); err == nil && s.State != string(health.StateHealthy) {
			var reasons []string
			for _, r := range s.Reasons {
				if r.Severity != string(health.SeverityInfo) {
					reasons = append(reasons, r.ID)
				}
			}
			if open { // the log tells when it begins and ends
				take(s.Now, s.State, reasons)
			}
		}
		switch busy := lab.CPUPressure() >= lab.Pressed; {
		case busy && !n.busy:
			m := foreign
			m.start = time.Now()
			n.log(m)
			n.busy = true
		case !busy && n.busy:
			n.finish(foreign.name)
			n.busy = false
		}
		select {
		case <-stop:
			return all
		case <-tick.C:
		}
	}
}

// judge compares the degraded intervals with the actions.
func (n *node) judge(seen []interval) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	counts := map[string]int{}
	for _, m := range n.done {
		counts[m.name]++
	}
	n.t.Logf("%s: %v; %d intervals that were not healthy", now.Sub(n.began).Round(time.Second), counts, len(seen))
	for _, i := range seen {
		text := fmt.Sprintf("%.1fs to %.1fs: %s, %s", i.start.Sub(n.began).Seconds(), i.end.Sub(n.began).Seconds(), strings.Join(i.states, ", "), strings.Join(i.reasons, ", "))
		if !slices.Equal(i.states, []string{string(health.StateDegraded)}) {
			n.t.Errorf("%s: want degraded at most", text)
			continue
		}
		belongs := i.belongs(n.done, now)
		if len(belongs) == 0 {
			n.t.Errorf("%s: no action explains it", text)
			continue
		}
		n.t.Logf("%s: %s", text, strings.Join(belongs, ", "))
	}
}

// belongs names the actions that explain an interval: it lies within near of
// them, and every reason in it was allowed.
func (i *interval) belongs(done []made, now time.Time) (names []string) {
	for _, m := range done {
		if m.end.IsZero() {
			m.end = now
		}
		if i.start.Before(m.start) || i.end.After(m.end.Add(near)) {
			continue
		}
		if !slices.ContainsFunc(i.reasons, func(r string) bool { return !slices.Contains(m.allowed, r) }) {
			names = append(names, m.name)
		}
	}
	return names
}

// TestBelongs: what the soak would complain of.
func TestBelongs(t *testing.T) {
	t0 := time.Now()
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	done := []made{
		{name: "restart", allowed: []string{health.RuntimeStarting}, start: at(10), end: at(12)},
		{name: "busy", allowed: slow, start: at(30)},
	}
	for name, tt := range map[string]struct {
		i    interval
		want string
	}{
		"during it":          {interval{start: at(10.1), end: at(12.5), reasons: []string{health.RuntimeStarting}}, "restart"},
		"until 3 s later":    {interval{start: at(13), end: at(14.9), reasons: []string{health.RuntimeStarting}}, "restart"},
		"for too long":       {interval{start: at(11), end: at(15.1), reasons: []string{health.RuntimeStarting}}, ""},
		"before it":          {interval{start: at(9.9), end: at(11), reasons: []string{health.RuntimeStarting}}, ""},
		"another reason":     {interval{start: at(11), end: at(12), reasons: []string{health.RuntimeStarting, health.Unknown}}, ""},
		"one that continues": {interval{start: at(31), end: at(40), reasons: []string{health.RelistSlow}}, "busy"},
	} {
		if got := strings.Join(tt.i.belongs(done, at(60)), ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
