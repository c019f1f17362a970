package text

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// WriteIncidentsText writes a list of incidents for a person at a terminal.
func WriteIncidentsText(w io.Writer, list []incident.Summary, color bool) error {
	t := &textWriter{color: color}
	if len(list) == 0 {
		t.buf.WriteString("no incidents\n")
	} else {
		rows := [][]string{{"ID", "OPENED", "LASTED", "STATE", "REASON", "OUTCOME"}}
		for i := range list {
			s := &list[i]
			rows = append(rows, []string{
				view.Say(s.ID), s.Opened.UTC().Format(view.WallTime), view.Float(s.Duration), view.Say(string(s.State)), view.Say(s.Reason) + view.Others(s), view.Outcome(s),
			})
		}
		t.table(rows, "llrlll")
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

// WriteIncidentText writes the story of one incident for a person at a terminal.
// Nothing in it can make the terminal do anything.
func WriteIncidentText(w io.Writer, one *incident.Incident, color bool) error {
	t := &textWriter{color: color}
	fmt.Fprintf(&t.buf, "%s: %s, %s\n\n", t.paint(stateColor(one.State), strings.ToUpper(view.Say(string(one.State)))), t.paint(bold, view.Say(one.Reason)), view.Outcome(&one.Summary))
	t.row("Incident", view.Say(one.ID))
	t.row("Opened", one.Opened.UTC().Format(view.WallTime))
	if one.Closed != nil {
		t.row("Closed", one.Closed.UTC().Format(view.WallTime)+", after "+view.Float(one.Duration))
	} else {
		t.row("Lasts", "for "+view.Float(one.Duration)+" by "+one.Updated.UTC().Format(view.WallTime))
	}
	for _, g := range one.Gaps {
		t.row("Unwatched", "for "+view.Seconds(g.To.Sub(g.From))+" from "+g.From.UTC().Format(view.WallTime)+": plegd was not running")
	}
	if one.KubeletMessage != "" {
		t.row("Kubelet", view.Say(one.KubeletMessage))
	} else {
		t.row("Kubelet", "the node stayed Ready")
	}
	t.row("Runtime", view.Say(strings.TrimSpace(one.Runtime.Name+" "+one.Runtime.Version+" at "+one.Endpoint)))
	t.row("Before", relistsBefore(one.Relists))
	t.buf.WriteByte('\n')

	rows := [][]string{{"REASON", "SEVERITY", "FROM", "TO", "STOOD", "AS PRIMARY"}}
	for _, r := range one.Reasons {
		rows = append(rows, []string{view.Say(r.ID), view.Say(string(r.Severity)), "+" + view.Float(r.First), "+" + view.Float(r.Last), view.Float(r.Active), view.Float(r.Primary)})
	}
	t.table(rows, "llrrrr")

	for i := range one.Timeline {
		if i > 0 && i == len(one.Timeline)/2 && one.TimelineDropped > 0 {
			fmt.Fprintf(&t.buf, "\n%s left out in the middle\n", view.Count(one.TimelineDropped, "moment is", "moments are"))
		}
		t.moment(&one.Timeline[i])
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

// relistsBefore says how the relists before an incident went.
func relistsBefore(list []health.RelistResult) string {
	if len(list) == 0 {
		return "no relist had ended"
	}
	var took []time.Duration
	failed := 0
	for _, r := range list {
		took = append(took, r.End.Sub(r.Start))
		if r.Err != nil {
			failed++
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("%s, %d failed, median %s, slowest %s", view.Count(len(list), "relist", "relists"), failed,
		view.Seconds(took[len(took)/2]), view.Seconds(took[len(took)-1]))
}

// moment is one entry of the timeline.
func (t *textWriter) moment(m *incident.Moment) {
	s := m.Snapshot
	if s == nil {
		return
	}
	head := string(s.State)
	if s.Reason != "" {
		head += ": " + s.Reason
	}
	if s.RulesFailIn != nil && *s.RulesFailIn == 0 {
		head += ", the kubelet manages no pods"
	}
	if s.NotReadyIn != nil && s.NodeReady {
		head += ", NotReady " + view.Window(s.NotReadyIn, s.NotReadyInLatest)
	}
	fmt.Fprintf(&t.buf, "\n%s %s\n", t.paint(dim, "+"+view.Float(m.Offset)), t.paint(stateColor(s.State), view.Say(head)))
	for i, a := range s.Active {
		if i > 0 {
			fmt.Fprintf(&t.buf, "  also %s\n", view.Say(a.ID))
		}
		t.evidence("  - ", a.Evidence)
	}
	if s.KubeletMessage != "" {
		t.paragraph("  kubelet: ", view.Say(s.KubeletMessage))
	}
	if s.State == health.StateHealthy {
		return
	}
	for _, line := range factLines(s) {
		t.paragraph("  ", view.Say(line))
	}
}

// factLines are the facts that a person needs besides the evidence: the runtime's
// threads, and the pods.
func factLines(s *health.Snapshot) (out []string) {
	f := &s.Facts
	if p := f.Evidence.Process; p != nil {
		var states []string
		for _, state := range slices.Sorted(maps.Keys(p.Threads)) {
			if p.Threads[state] > 0 {
				states = append(states, fmt.Sprintf("%s %d", state, p.Threads[state]))
			}
		}
		line := fmt.Sprintf("process %d (%s), threads %s, %d of %d descriptors", p.PID, p.Comm, strings.Join(states, " "), p.OpenFDs, p.MaxFDs)
		if !p.Alive {
			line = fmt.Sprintf("process %d (%s) is gone", p.PID, p.Comm)
		}
		if len(p.WaitChannels) > 0 {
			line += ", waiting in " + strings.Join(p.WaitChannels, ", ")
		}
		out = append(out, line)
	}
	pod := func(p *health.PodInspection) string {
		return fmt.Sprintf("%s/%s in %s for %s", p.Namespace, p.Name, p.Operation, view.PodTook(s, p))
	}
	stuck := view.StuckPods(s)
	for i := range stuck {
		out = append(out, "stuck: "+pod(&stuck[i]))
	}
	if len(f.Relist.Slowest) > 0 {
		out = append(out, "slowest: "+pod(&f.Relist.Slowest[0]))
	}
	return out
}
