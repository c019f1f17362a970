package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/kubelet"
)

// maxIncidents is how many incidents the status lists.
const maxIncidents = 10

// Content is what the status of a node is made from.
type Content struct {
	Snapshot *facts.Snapshot
	// Incidents are listed, newest first.
	Incidents []incident.Summary
	// Recent are the last ten minutes; without bins there is no plot.
	Recent []RelistBin
}

// headlines stand where no reason is active.
var headlines = map[facts.State]string{
	facts.StateHealthy:   "All is well",
	facts.StateStarting:  "Starting",
	facts.StateUnknown:   "plegd cannot see the runtime",
	facts.StateDegraded:  "No reason was found",
	facts.StateUnhealthy: "No reason was found",
}

// Status returns the status of a node.
func Status(c Content) *Document {
	s := c.Snapshot
	primary, secondary := splitReasons(&s.Verdict)
	r := reason(primary.ID)
	d := &Document{
		Node: Printable(s.Node), State: facts.State(Printable(string(s.State))), Title: headlines[s.State],
		Reason: r.ID, Meaning: r.Meaning, Restart: restart(restartText(&s.WaitChain, r.Restart)), Clock: newClock(s), Version: Printable(s.PlegdVersion), Taken: s.At, Live: true,
	}
	steps := withoutNext(s.Steps, s.Next)
	todo := Section{ID: "todo", Title: "What to do", Kind: Steps, Rows: items(steps), Column: 1}
	if r.ID != "" {
		todo.Footnote = "Does restarting the runtime help? " + restartText(&s.WaitChain, r.Restart)
	}
	if primary.ID != "" {
		d.Title = Printable(primary.ID)
		d.Detail = severity(s, primary)
	} else if !s.Since.IsZero() {
		d.Detail = lastingFor(s, s.Since)
	}
	d.Summary = terms(
		culpritTerm(&s.WaitChain, s.Symptom),
		Row{Label: "Predicted", Text: outlook(s)},
		Row{Label: "Kubelet", Text: kubeletText(s)},
		Row{Label: "Message", Text: Printable(Message(s))},
		Row{Label: "Next", Text: Printable(s.Next)},
	)
	also := Section{ID: "others", Title: "Also active", Kind: Items}
	for _, a := range secondary {
		also.Rows = append(also.Rows, Row{Label: Printable(a.ID), Text: severity(s, a), Sub: secondLines(&a)})
	}
	d.Sections = filled(
		todo,
		Section{ID: "evidence", Title: "Evidence", Kind: Items, Rows: items(BesideChain(&s.WaitChain, primary.Evidence)), Column: 2},
		chain(&s.WaitChain),
		Section{ID: "latency", Title: "The last 10 minutes", Plot: newPlot(s, c.Recent)},
		stateSection(s), operations(s), pods(s), also,
		Incidents(c.Incidents[:min(len(c.Incidents), maxIncidents)]),
	)
	return d
}

// restartText says whether a restart of the runtime helps. Where the reason's page is not sure, it does not while another
// process or a mount that stands still is the culprit.
func restartText(c *facts.WaitChain, page string) string {
	l := c.Culprit
	outlives := l != nil && l.Kind != facts.KindRuntime && (l.PID != 0 || l.Kind == facts.KindMount) && l.State.StandsStill()
	if strings.HasPrefix(page, "Maybe") && outlives && c.ChainEnd == "" {
		return "No. The culprit outlives it, and a new runtime may wait for it too."
	}
	return page
}

// restart is the first clause after yes, no or maybe.
func restart(text string) string {
	answer, rest, _ := strings.Cut(text, ". ")
	why, _, _ := strings.Cut(rest, ". ")
	why, _, _ = strings.Cut(why, "; ")
	return strings.TrimSuffix(strings.TrimSuffix(answer, ".")+": "+strings.TrimSuffix(why, "."), ": ")
}

// withoutNext leaves out of the steps what Next says: the first sentence of a step whose commands
// are all in Next.
func withoutNext(steps []string, next string) []string {
	var out []string
	for _, step := range steps {
		if repeats(step, next) {
			_, step, _ = strings.Cut(step, ". ")
		}
		if step != "" {
			out = append(out, step)
		}
	}
	return out
}

// repeats reports whether a step has commands, and all of them are in next.
func repeats(step, next string) bool {
	commands := command.FindAllString(step, -1)
	for _, c := range commands {
		if !strings.Contains(next, c) {
			return false
		}
	}
	return len(commands) > 0
}

// secondNext is what the next step of a reason beside the primary one begins with.
const secondNext = "Next: "

// secondLines are what is known of a reason beside the primary one: its culprit, or else its first evidence, the next step,
// and the rest.
func secondLines(a *facts.Active) []string {
	own := a.Cause
	if own == nil {
		return printables(a.Evidence)
	}
	out := printables(BesideChain(&own.WaitChain, a.Evidence))
	first := min(len(out), 1)
	if own.Culprit != nil {
		who := culpritTerm(&own.WaitChain, "")
		out = slices.Insert(out, 0, who.Label+": "+who.Text)
		first = 1
	}
	if own.Next != "" {
		out = slices.Insert(out, first, secondNext+Printable(own.Next))
	}
	links := chain(&own.WaitChain)
	for i := range links.Rows {
		out = append(out, "Chain: "+chainText(&links.Rows[i]))
	}
	if links.Footnote != "" {
		out = append(out, links.Footnote)
	}
	return out
}

func severity(s *facts.Snapshot, a facts.Active) string {
	return Printable(string(a.Severity)) + ", " + lastingFor(s, a.Since)
}

// splitReasons returns the primary reason, an empty one if there is none, and the others.
func splitReasons(v *facts.Verdict) (primary facts.Active, secondary []facts.Active) {
	if len(v.Active) > 0 && v.Active[0].ID == v.Reason {
		return v.Active[0], v.Active[1:]
	}
	return primary, v.Active
}

// Low and High are the ages in seconds from which the bar is yellow, and red: the rule has
// failed, or is about to.
func (c Clock) Low() float64 { return c.Limit.Seconds() / 6 }

// High is described with Low.
func (c Clock) High() float64 { return c.Limit.Seconds() * .99 }

func newClock(s *facts.Snapshot) Clock {
	c := newBar(s)
	big, small := timeLeft(s)
	c.Big = big
	c.Small = []string{small}
	if c.Limit > 0 {
		c.Small = append(c.Small, facts.Seconds(c.Age)+" of "+facts.Seconds(c.Limit)+" since the last "+c.Watched)
	}
	return c
}

// newBar returns the age that the bar shows: that of the rule that fails first.
func newBar(s *facts.Snapshot) Clock {
	if s.LastSeen.IsZero() {
		return Clock{}
	}
	relist := Clock{Age: s.LastSeenAge, Limit: s.Threshold, Watched: "successful relist"}
	good := s.Facts.Status.LastGood
	if s.RulesFailIn == nil || good.IsZero() {
		return relist
	}
	status := Clock{Age: s.Age(good), Limit: kubelet.RuntimeDownAfter, Watched: "good status check"}
	// The rule that fails first is the one with as much time left as the prediction says.
	off := func(c Clock) time.Duration { return (max(0, c.Limit-c.Age) - *s.RulesFailIn).Abs() }
	if off(status) < off(relist) {
		return status
	}
	return relist
}

// timeLeft returns the time until NotReady, or a word in its place, and its explanation.
func timeLeft(s *facts.Snapshot) (big, small string) {
	const model = "by the model of the kubelet"
	left := s.NotReadyIn
	switch {
	case s.State == facts.StateUnknown:
		return "unknown", "plegd cannot see the runtime; the kubelet may"
	case s.State == facts.StateStarting && !s.RulesOK && s.NotReadyIn == nil:
		return "starting", "no relist has succeeded yet"
	case !s.NodeReady:
		return "NotReady", model
	case left == nil:
		return "Ready", model
	case *left <= 0:
		return window(left, s.NotReadyInLatest), "the API shows NotReady, if nothing changes"
	}
	return countdown(*left), "until the API shows NotReady at the earliest, if nothing changes"
}

// stateSection is the state of each part of plegd and of the runtime.
func stateSection(s *facts.Snapshot) Section {
	last := Row{Label: "Relist", Text: lastRelist(s)}
	running := inFlight(s)
	if running != "" {
		last = Row{Text: "the last one " + last.Text}
	}
	process := Row{Label: "Process", Text: process(s), Sub: hops(s)}
	return Section{ID: "state", Title: "Current state", Kind: Terms, Column: 1, Rows: terms(
		Row{Label: "Last seen", Text: lastSeen(s)},
		Row{Label: "Relist", Text: running}, last,
		Row{Label: "Status", Text: statusCheck(s)},
		Row{Label: "Fresh dial", Text: dial(s, &s.Facts.Probe)},
		Row{Label: "Runtime", Text: runtime(s)},
		process,
		Row{Label: "Missing", Text: missing(s)},
	)}
}

// operations are the calls to the runtime.
func operations(s *facts.Snapshot) Section {
	out := Section{ID: "operations", Title: "Calls to the runtime", Kind: Table, Column: 2,
		Heads: []string{"Call", "Last OK", "Took", "In flight", "Last error"}}
	for _, name := range slices.Sorted(maps.Keys(s.Facts.Calls)) {
		c := s.Facts.Calls[name]
		out.Rows = append(out.Rows, operation(s, name, &c))
	}
	return out
}

func operation(s *facts.Snapshot, name string, c *facts.Call) Row {
	row := Row{Cells: []string{shorten(Printable(name), 24), age(s, c.LastOK), "", "", ""}}
	if !c.LastOK.IsZero() {
		row.Cells[2] = facts.Seconds(c.LastOKDuration)
	}
	if !c.InFlightSince.IsZero() {
		row.Cells[3] = facts.Seconds(s.Age(c.InFlightSince))
	}
	if c.LastErr == nil {
		return row
	}
	row.Cells[4] = shorten(Printable(c.LastErr.Code), 20)
	if !c.LastFailed.IsZero() {
		row.Cells[4] += ", " + age(s, c.LastFailed)
	}
	if c.LastFailed.After(c.LastOK) {
		row.Mark = MarkBad
		row.Sub = []string{errorCause(c.LastErr)}
	}
	return row
}

// slowAfter is how long an inspection takes that is shown: it delays the next relist.
const slowAfter = time.Second

// pods are the inspections that are stuck, have failed or were slow.
func pods(s *facts.Snapshot) Section {
	out := Section{ID: "pods", Title: "Slow pods", Kind: Table, Heads: []string{"Pod", "Took", "In", "Result"}}
	r := &s.Facts.Relist
	seen := map[string]bool{}
	for _, p := range slices.Concat(r.Inspecting, r.Failing, r.Slowest) {
		took := p.Duration
		result := "ok"
		switch {
		case took == 0:
			took = s.Age(p.Start)
			result = "under way"
		case p.Err != nil:
			result = "failed " + facts.Count(max(1, p.Failures), "time", "times")
		}
		if took < slowAfter && p.Err == nil || seen[p.UID+result] {
			continue
		}
		seen[p.UID+result] = true
		name := shorten(Printable(p.Namespace+"/"+p.Name), 48)
		row := Row{Cells: []string{name, facts.Seconds(took), shorten(Printable(p.Operation), 18), result}}
		if p.Err != nil {
			row.Mark = MarkBad
			row.Sub = []string{errorCause(p.Err)}
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
