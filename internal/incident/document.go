// Package incident records incidents: it opens one when the verdict leaves
// healthy, keeps the snapshots of each change, and stores it in one JSON file.
//
// The judge calls it and never waits for it: files are read and written by a
// goroutine of its own, which a dead disk may block. All that it keeps is bounded.
package incident

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// Outcome is how an incident ended.
type Outcome string

// The outcomes of an incident. It is interrupted if plegd stopped, or the node rebooted,
// while it was open: Closed is the time of the last write then.
const (
	Open        Outcome = "open"
	Recovered   Outcome = "recovered"
	Interrupted Outcome = "interrupted"
)

// Summary is the head of an incident, as lists show it. Times are UTC, durations
// are seconds by the monotonic clock.
type Summary struct {
	SchemaVersion int        `json:"schema_version"`
	PlegdVersion  string     `json:"plegd_version"`
	ID            string     `json:"id"`
	Outcome       Outcome    `json:"outcome"`
	Opened        time.Time  `json:"opened"`
	Closed        *time.Time `json:"closed"` // null while it is open
	// Duration lasts until Closed, or until the last judgement.
	Duration float64     `json:"duration_seconds"`
	State    facts.State `json:"state"` // the worst one
	// Reason is the primary reason that stood longest. Reasons are all reasons that
	// were active, in order of appearance, without those of severity info.
	Reason  string        `json:"reason"`
	Reasons []ReasonTimes `json:"reasons"`
	// Stored reports whether a version of it is on disk. It is true in the file.
	Stored bool `json:"stored"`
}

// ReasonTimes holds for how long a reason was the primary one, in seconds.
type ReasonTimes struct {
	ID      string  `json:"id"`
	Primary float64 `json:"primary_seconds"`
}

// Incident is the content of an incident's file and of /api/v1/incidents/{id}.
type Incident struct {
	Summary
	Updated time.Time `json:"updated"` // time of this version
	// KubeletMessage is the last message of a NotReady node, empty if it stayed Ready.
	KubeletMessage string `json:"kubelet_message"`
	// Ending holds what a sample after the end shows to be different from before, as
	// sentences. It is empty if nothing is.
	Ending []string `json:"ending"`
	// TimelineDropped is the number of moments left out of the middle of Timeline.
	TimelineDropped int `json:"timeline_dropped"`
	// Timeline holds the onset, each change of the verdict, and the end.
	Timeline []Moment `json:"timeline"`
}

// Moment is one judgement of the timeline. Offset is since the incident opened.
type Moment struct {
	Offset   float64         `json:"offset_seconds"`
	Snapshot *facts.Snapshot `json:"snapshot"`
}

// shorten drops moments from the middle of the timeline until n are left.
func (i *Incident) shorten(n int) {
	if excess := len(i.Timeline) - n; excess > 0 {
		i.Timeline = slices.Concat(i.Timeline[:n/2], i.Timeline[n/2+excess:])
		i.TimelineDropped += excess
	}
}

// summarize sets the fields that the timeline shows.
func (i *Incident) summarize() {
	i.Reasons = nil
	for n, m := range i.Timeline {
		s, until := m.Snapshot, i.Duration
		if n+1 < len(i.Timeline) {
			until = i.Timeline[n+1].Offset
		}
		if s.State.Rank() > i.State.Rank() {
			i.State = s.State
		}
		i.KubeletMessage = cmp.Or(s.KubeletMessage, i.KubeletMessage)
		for _, a := range s.Active {
			at := slices.IndexFunc(i.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID })
			if at < 0 && a.Severity != facts.SeverityInfo {
				at = len(i.Reasons)
				i.Reasons = append(i.Reasons, ReasonTimes{ID: a.ID})
			}
			if at >= 0 && a.ID == s.Reason {
				i.Reasons[at].Primary += until - m.Offset
			}
		}
	}
	if len(i.Reasons) > 0 {
		i.Reason = slices.MaxFunc(i.Reasons, func(a, b ReasonTimes) int { return cmp.Compare(a.Primary, b.Primary) }).ID
	}
}

var validID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}$`)

func newID(opened time.Time) string {
	return fmt.Sprintf("%s-%06x", opened.UTC().Format("20060102T150405Z"), rand.N(1<<24))
}

// Difference is a moment of an incident that today's classifier judges differently.
type Difference struct {
	Index  int            `json:"index"` // of the timeline
	Offset float64        `json:"offset_seconds"`
	Was    *facts.Verdict `json:"was"` // the recorded one
	Is     *facts.Verdict `json:"is"`
}

// Replay judges the facts of each moment again, given the verdict that stood before
// it. It returns the moments whose verdict differs in its state, its primary reason
// or its active reasons, and the number of moments judged. Moments without facts are
// skipped.
func Replay(i *Incident) (different []Difference, judged int) {
	for n := range i.Timeline {
		s := i.Timeline[n].Snapshot
		if s.At.IsZero() {
			continue
		}
		judged++
		previous := s.Previous
		unknown := func(a facts.Active) bool { return !health.Known(a.ID) }
		if previous != nil && slices.ContainsFunc(previous.Active, unknown) {
			previous = nil // it has reasons that this classifier does not have
		}
		was, is := &s.Verdict, health.Judge(&s.Facts, s.At, previous)
		if was.State != is.State || was.Reason != is.Reason || !slices.Equal(ids(was), ids(is)) {
			different = append(different, Difference{Index: n, Offset: i.Timeline[n].Offset, Was: was, Is: is})
		}
	}
	return different, judged
}

// ids returns the active reasons, sorted by name.
func ids(v *facts.Verdict) []string {
	out := make([]string, 0, len(v.Active))
	for _, a := range v.Active {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}

const (
	conditionAge = 10 * time.Second // at the end, of a condition that may have ended with the incident
	minThrottled = 0.2              // the share of time lost to the CPU quota that counts
)

// sampled reports whether the samples that can show the end are newer than it.
func sampled(e *facts.Evidence, end time.Time) bool {
	p, ch, cg := e.Process, e.Children, e.Cgroup
	return (p == nil || p.At.After(end)) && (ch == nil || ch.At.After(end)) && (cg == nil || cg.At.After(end))
}

// explainEnd returns what samples taken after the end show to be different from the evidence
// before the incident and in its moments, a sentence for each subject. Without such a sample
// it returns nothing. Only the start in ticks since boot tells a process from a later one
// with the same pid.
func explainEnd(before *facts.Snapshot, timeline []Moment, now *facts.Evidence, end time.Time) []string {
	out, said := []string{}, map[any]bool{}
	say := func(subject any, format string, args ...any) {
		if !said[subject] {
			out, said[subject] = append(out, fmt.Sprintf(format, args...)), true
		}
	}
	moments := slices.Insert(slices.Clone(timeline), 0, Moment{Snapshot: before})
	for i, m := range moments {
		old := &m.Snapshot.Facts.Evidence
		lasted := m.Snapshot.At.Before(end) && (i+1 == len(moments) || end.Sub(moments[i+1].Snapshot.At) <= conditionAge)
		if was, is := old.Process, now.Process; started(was) && started(is) && is.At.After(end) {
			switch {
			case was.PID != is.PID || was.StartTicks != is.StartTicks:
				say("runtime", "%s was restarted: pid %d before, pid %d since %s.", is.Comm, was.PID, is.PID, clock(is.Start))
			case lasted && was.Stopped() && !is.Stopped():
				say("runtime", "%s, pid %d, was stopped and was continued. It was not restarted.", is.Comm, is.PID)
			}
		}
		if was, is := old.KubeletProcess, now.KubeletProcess; was != nil && was.StartTicks > 0 && is != nil &&
			is.StartTicks > 0 && (was.PID != is.PID || was.StartTicks != is.StartTicks) {
			say("kubelet", "The kubelet was restarted: pid %d before, pid %d since %s.", was.PID, is.PID, clock(is.Started))
		}
		if was, is := old.Children, now.Children; lasted && was != nil && is != nil && is.At.After(end) {
			for _, c := range was.Stuck {
				if !slices.ContainsFunc(is.Stuck, func(s facts.Child) bool { return s.PID == c.PID }) {
					words := map[string]string{"T": "stopped", "F": "frozen"}
					say(c.PID, "%s, pid %d, is no longer %s.", c.Comm, c.PID, cmp.Or(words[c.State], "blocked in state "+c.State))
				}
			}
		}
		if was, is := old.Cgroup, now.Cgroup; lasted && was != nil && is != nil && was.Path == is.Path && is.At.After(end) {
			switch {
			case was.Frozen && !is.Frozen:
				say("cgroup", "The cgroup %s was frozen and was thawed.", is.Path)
			case was.Throttled >= minThrottled && is.Throttled == 0:
				say("cgroup", "Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", is.Path,
					100*was.Throttled)
			}
		}
	}
	return out
}

// started reports whether a process is running and its start known.
func started(p *facts.Process) bool { return p != nil && p.Alive && p.StartTicks > 0 }

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
