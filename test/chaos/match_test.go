//go:build e2e

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// injection is a fault that was made.
type injection struct {
	kind
	from, to time.Time
	// alone is true when no other one stood at any time of it.
	alone bool

	// What came of it: the incident, when its reason first stood and last did,
	// and what is wrong.
	in         *incident.Incident
	onset, end time.Duration
	wrong      string
}

const (
	// endWithin is how soon after a fault's end its reason must have gone.
	endWithin = 5 * time.Second
	// counted is how long a fault must last to count.
	counted = 10 * time.Second
)

// span is a time in which a reason stood.
type span struct{ from, to time.Time }

// spans returns the times in which a reason was active in an incident.
func spans(one *incident.Incident, reason string) (out []span) {
	for i, m := range one.Timeline {
		if !slices.ContainsFunc(m.Snapshot.Active, func(a health.Active) bool { return a.ID == reason }) {
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
// has its full time from then on.
func (j *injection) match(all []*incident.Incident, up []time.Time) {
	due, gone := j.from.Add(j.kind.onset), j.to.Add(endWithin)
	for _, at := range up {
		if at.After(j.from) && at.Before(due) {
			due = at.Add(j.kind.onset)
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

// beside finds the faults that stood at once and are not in one incident.
func beside(injected []*injection, all []*incident.Incident) {
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
			if a == b || a.wrong != "" || to.Sub(from) < besides {
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

// outside returns the incidents, and for how long, that no injection explains.
// Reasons of the machine's own load are separate: they are expected.
func outside(all []*incident.Incident, injected []*injection) (out, machine []*incident.Incident) {
	for _, one := range all {
		explained := slices.ContainsFunc(injected, func(j *injection) bool {
			return !one.Opened.Before(j.from.Add(-time.Second)) && !one.Opened.After(j.to.Add(endWithin))
		})
		switch {
		case explained:
		case !slices.ContainsFunc(one.Reasons, func(r incident.ReasonTimes) bool {
			return !strings.HasPrefix(r.ID, "Node") || !strings.HasSuffix(r.ID, "Stall")
		}):
			machine = append(machine, one)
		default:
			out = append(out, one)
		}
	}
	return out, machine
}

// table compares injected faults with reported ones.
func table(injected []*injection) string {
	type row struct {
		n, right       int
		said           map[string]int
		onsets, ends   []time.Duration
		reason, wrongs string
	}
	rows := map[string]*row{}
	for _, j := range injected {
		if j.to.Sub(j.from) < counted {
			continue
		}
		r := rows[j.name]
		if r == nil {
			r = &row{reason: j.reason, said: map[string]int{}}
			rows[j.name] = r
		}
		r.n++
		if j.wrong == "" {
			r.right++
		} else {
			r.wrongs += " " + j.wrong
		}
		if j.in == nil {
			r.said["nothing"]++
			continue
		}
		r.onsets, r.ends = append(r.onsets, j.onset), append(r.ends, j.end)
		if j.alone {
			r.said[j.in.Reason]++
		} else {
			var ids []string
			for _, x := range j.in.Reasons {
				if x.Active >= 1 {
					ids = append(ids, x.ID)
				}
			}
			slices.Sort(ids)
			r.said["with others: "+strings.Join(ids, "+")]++
		}
	}
	var b strings.Builder
	b.WriteString("| injected, at least 10 s | reason | right | the incident's main reason, or all of several at once | named after, s: median, most | gone after, s: median, most |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		var said []string
		for _, s := range slices.Sorted(maps.Keys(r.said)) {
			said = append(said, fmt.Sprintf("%s %d", s, r.said[s]))
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d%s | %s | %s | %s |\n", name, r.reason, r.right, r.n, r.wrongs, strings.Join(said, ", "), spread(r.onsets), spread(r.ends))
	}
	return b.String()
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "never"
	}
	slices.Sort(d)
	return fmt.Sprintf("%.1f, %.1f", d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
}
