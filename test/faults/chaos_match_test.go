//go:build e2e

package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

// injection is a fault that TestChaos has made.
type injection struct {
	*kind
	// reason must be named for it, within goal after it has been made.
	reason string
	goal   time.Duration
	// after is when it begins, from the begin of the episode; lasts is how long it stands.
	after, lasts   time.Duration
	from, made, to time.Time
	// alone is true when no other one stood at any time of it.
	alone bool

	// The incident, when its reason first stood and last did after the begin and the end,
	// and the fault of plegd in it.
	in         *incident.Incident
	onset, end time.Duration
	wrong      string
}

const (
	// endWithin is how soon after a fault's end its reason must have gone.
	endWithin = 5 * time.Second
	// unwritten is for how long a change of an open incident may be in memory only.
	unwritten = 11 * time.Second
	// counted is how long a fault must last to count.
	counted = 10 * time.Second
)

// counts reports whether it lasted for long enough.
func (j *injection) counts() bool { return j.to.Sub(j.from) >= counted }

// span is a time in which a reason stood.
type span struct{ from, to time.Time }

// spans returns the times in which a reason was active in an incident.
func spans(one *incident.Incident, reason string) (out []span) {
	for i, m := range one.Timeline {
		if !slices.ContainsFunc(m.Snapshot.Active, func(a facts.Active) bool { return a.ID == reason }) {
			continue
		}
		end := one.Updated
		if i+1 < len(one.Timeline) {
			end = one.Timeline[i+1].Snapshot.At
		}
		if n := len(out); n > 0 && !m.Snapshot.At.After(out[n-1].to) {
			out[n-1].to = end
			continue
		}
		out = append(out, span{m.Snapshot.At, end})
	}
	return out
}

// match finds the incident of an injection. up are the moments from which a
// plegd that was killed served again: what begins or ends while nobody watches
// has its full time from then on, as has a change that was not on the disk yet.
func (j *injection) match(all []*incident.Incident, up []time.Time) {
	due, gone := j.made.Add(j.goal), j.to.Add(endWithin)
	for _, at := range up {
		if at.After(j.from) && at.Before(due.Add(unwritten)) {
			due = at.Add(j.goal)
		}
		if at.After(j.to) && at.Before(gone) {
			gone = at.Add(endWithin)
		}
	}
	var first, last time.Time
	for _, one := range all {
		for _, s := range spans(one, j.reason) {
			if s.to.Before(j.from) || s.from.After(gone) {
				continue
			}
			if first.IsZero() || s.from.Before(first) {
				first, j.in = s.from, one
			}
			if s.to.After(last) {
				last = s.to
			}
		}
	}
	if j.in == nil {
		j.wrong = "missed"
		return
	}
	j.onset, j.end = max(0, first.Sub(j.from)), max(0, last.Sub(j.to))
	switch {
	case first.After(due):
		j.wrong = fmt.Sprintf("late by %.1fs", first.Sub(due).Seconds())
	case last.After(gone):
		j.wrong = fmt.Sprintf("gone late by %.1fs", last.Sub(gone).Seconds())
	case j.alone && j.in.Reason != j.reason:
		j.wrong = "taken for " + j.in.Reason
	}
}

// besides is how long two faults must stand at once for one incident to have to
// list both.
const besides = 5 * time.Second

// beside finds the faults that stood at once and are not in one incident. A plegd that was
// killed meanwhile, as up shows, has lost the changes that were not on the disk.
func beside(injected []*injection, all []*incident.Incident, up []time.Time) {
	lists := func(one *incident.Incident, reason string) bool {
		return slices.ContainsFunc(one.Reasons, func(r incident.ReasonTimes) bool { return r.ID == reason })
	}
	for _, a := range injected {
		for _, b := range injected {
			from, to := a.from, a.to
			if b.from.After(from) {
				from = b.from
			}
			if b.to.Before(to) {
				to = b.to
			}
			killed := slices.ContainsFunc(up, func(at time.Time) bool { return at.After(from) && at.Before(to.Add(unwritten)) })
			if a == b || a.wrong != "" || to.Sub(from) < besides || killed {
				continue
			}
			if !slices.ContainsFunc(all, func(one *incident.Incident) bool {
				return !one.Opened.After(to) && one.Closed != nil && one.Closed.After(from) && lists(one, a.reason) && lists(one, b.reason)
			}) {
				a.wrong = "not in one incident with " + b.reason
			}
		}
	}
}

// outside returns the incidents that no injection explains. Reasons of the machine's own
// load are expected.
func outside(all []*incident.Incident, injected []*injection) []*incident.Incident {
	return slices.DeleteFunc(slices.Clone(all), func(one *incident.Incident) bool {
		explained := slices.ContainsFunc(injected, func(j *injection) bool {
			return !one.Opened.Before(j.from.Add(-time.Second)) && !one.Opened.After(j.to.Add(endWithin))
		})
		return explained || !slices.ContainsFunc(one.Reasons, func(r incident.ReasonTimes) bool { return r.ID != health.NodePressure })
	})
}

// judge compares the injections with the incidents.
func (c *chaos) judge() {
	t := c.t
	dir := incident.Dir(c.plegd.StateDir)
	list, bad, err := incident.Read(dir)
	if err != nil || len(bad) > 0 {
		t.Fatalf("read %s: %v, unreadable: %v", dir, err, bad)
	}
	var all []*incident.Incident
	for _, s := range list {
		one, err := incident.ReadOne(dir, s.ID)
		lab.Must(t, err)
		all = append(all, one)
		if different, _ := incident.Replay(one); len(different) > 0 {
			t.Errorf("%s is judged differently now, at +%.1fs: was %s, is %s", s.ID, different[0].Offset, different[0].Recorded.Reason, different[0].Judged.Reason)
		}
		if s.Outcome == incident.Open {
			t.Errorf("%s is open for ever: %s", s.ID, s.Reason)
		}
	}
	// The running daemon reports the same.
	var told []incident.Summary
	out := lab.Command{Args: []string{"incidents", "-o", "json", "--control-socket=" + c.plegd.ControlSocket}}.Run(t, 10*time.Second)
	if err := json.Unmarshal([]byte(out.Stdout), &told); err != nil || out.Code != 0 || len(told) != len(list) {
		t.Errorf("plegd incidents: exit %d, %d incidents, want %d: %v %s", out.Code, len(told), len(list), err, out.Stderr)
	}
	n, right := 0, 0
	for _, j := range c.made {
		j.match(all, c.up)
	}
	beside(c.made, all, c.up)
	for _, j := range c.made {
		if !j.counts() {
			continue
		}
		if n++; j.wrong == "" {
			right++
			continue
		}
		t.Logf("%s at %s for %s: %s", j.name, j.from.Format(time.TimeOnly), j.to.Sub(j.from).Round(time.Second), j.wrong)
	}
	unexplained := outside(all, c.made)
	for _, one := range unexplained {
		t.Errorf("outside every fault: %s at %s for %.1f s: %s", one.ID, one.Opened.Local().Format(time.TimeOnly), one.Duration, one.Reason)
	}
	lab.Report(t, "%d faults, %d of them counted, %d right; %d incidents, %d outside every fault; plegd killed %d times", len(c.made), n, right, len(all), len(unexplained), len(c.up))
	if float64(right) < rightShare*float64(n) {
		t.Errorf("%d of %d are right, want %.0f %%", right, n, 100*rightShare)
	}
}
