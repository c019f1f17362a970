package text

import (
	"fmt"
	"io"
	"strings"

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
	t.row("Node", view.NotReadyFor(one))
	t.row("Kubelet", view.Say(one.KubeletMessage))
	t.row("Runtime", view.Say(strings.TrimSpace(one.Runtime.Name+" "+one.Runtime.Version+" at "+one.Endpoint)))
	t.row("Before", view.RelistsBefore(one.Relists))
	for i, line := range view.Ending(one) {
		t.row([]string{"Ending", ""}[min(i, 1)], line)
	}
	if s := view.Chained(one); s != nil {
		t.chain(s)
	}
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
	if f := view.Forecast(s); f != "" {
		head += ", " + f
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
	for _, line := range view.MomentFacts(s) {
		t.paragraph("  ", view.Say(line))
	}
}
