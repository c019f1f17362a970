package text

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// WriteIncidentMarkdown writes the technical half of a post-mortem: what was seen
// when, and what it is evidence for. names is true where one may hold the names of
// pods; node is the host's name, which may be empty.
func WriteIncidentMarkdown(w io.Writer, one *incident.Incident, node string, names bool) error {
	m := &markdown{}
	m.head(one, node, names)
	m.timeline(one)
	m.cause(one)
	m.relists(one)
	m.section("What ended it")
	m.list(view.Ending(one))
	m.section("Commands for the follow-up")
	m.commands(view.FollowUp(one))
	m.section("To be added by hand")
	m.list([]string{"which users and workloads noticed, and how", "what was done, by whom and when", "why the cause could come about, and what will prevent it"})
	_, err := w.Write(m.Bytes())
	return err
}

// WriteIncidentsMarkdown writes a list of incidents.
func WriteIncidentsMarkdown(w io.Writer, list []incident.Summary) error {
	m := &markdown{}
	rows := [][]string{{"Incident", "Opened", "Lasted", "State", "Reason", "Outcome"}}
	for i := range list {
		s := &list[i]
		rows = append(rows, []string{
			escape(s.ID), s.Opened.UTC().Format(view.WallTime), view.Float(s.Duration), escape(string(s.State)), escape(s.Reason) + view.Others(s), view.Outcome(s),
		})
	}
	m.table(rows)
	_, err := w.Write(m.Bytes())
	return err
}

type markdown struct{ bytes.Buffer }

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

func (m *markdown) section(title string) { m.printf("\n## %s\n\n", title) }

func (m *markdown) list(items []string) {
	for _, item := range items {
		m.printf("- %s\n", escape(item))
	}
}

// commands lists texts with commands in backticks.
func (m *markdown) commands(items []string) {
	for _, item := range items {
		m.printf("- %s\n", escapeWords(item))
	}
}

// table writes rows, the first one as their heads.
func (m *markdown) table(rows [][]string) {
	for i, row := range rows {
		for _, cell := range row {
			m.printf("| %s ", cell)
		}
		m.printf("|\n")
		if i == 0 {
			m.printf("%s|\n", strings.Repeat("|---", len(row)))
		}
	}
}

func (m *markdown) head(one *incident.Incident, node string, names bool) {
	title := "Incident " + escape(one.ID) + ": " + escape(one.Reason)
	if node != "" {
		title += " on " + escape(node)
	}
	m.printf("# %s\n\nWritten by plegd %s from what it recorded. ", title, escape(one.PlegdVersion))
	if names {
		m.printf("**It holds names of pods and containers, paths and process ids:** read it before you pass it on.\n\n")
	} else {
		m.printf("Names of pods and containers are left out.\n\n")
	}
	rows := [][]string{{"", ""}, {"Opened", one.Opened.UTC().Format(view.WallTime)}}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, []string{name, text})
		}
	}
	if one.Closed != nil {
		add("Closed", one.Closed.UTC().Format(view.WallTime)+", after "+view.Float(one.Duration)+", "+view.Outcome(&one.Summary))
	} else {
		add("Open", "for "+view.Float(one.Duration)+" by "+one.Updated.UTC().Format(view.WallTime))
	}
	add("Worst verdict", string(one.State))
	add("Cause", escape(one.Reason))
	if s := view.Chained(one); s != nil {
		add(view.CulpritLabel(s), escape(view.Link(*s.Culprit)))
	}
	add("Node", view.NotReadyFor(one))
	add("Message of a NotReady node", escape(one.KubeletMessage))
	add("Runtime", escape(strings.TrimSpace(one.Runtime.Name+" "+one.Runtime.Version+" at "+one.Endpoint)))
	for _, g := range one.Gaps {
		add("Unwatched", view.Seconds(g.To.Sub(g.From))+" from "+g.From.UTC().Format(view.WallTime)+": plegd was not running")
	}
	m.table(rows)
}

func (m *markdown) timeline(one *incident.Incident) {
	m.section("What happened when")
	rows := [][]string{{"Time (UTC)", "After", "Verdict", "Evidence"}}
	for i := range one.Timeline {
		at := &one.Timeline[i]
		s := at.Snapshot
		if s == nil {
			continue
		}
		verdict := escape(string(s.State))
		if s.Reason != "" {
			verdict += ": **" + escape(s.Reason) + "**"
		}
		if f := view.Forecast(s); f != "" {
			verdict += "<br>" + f
		}
		var evidence []string
		for n, a := range s.Active {
			for _, e := range a.Evidence {
				if n > 0 {
					e = "(" + a.ID + ") " + e
				}
				evidence = append(evidence, escape(e))
			}
		}
		rows = append(rows, []string{one.At(at.Offset).UTC().Format("15:04:05.0"), view.Float(at.Offset), verdict, strings.Join(evidence, "<br>")})
	}
	m.table(rows)
	if one.TimelineDropped > 0 {
		m.printf("\n%s left out of the middle.\n", view.Count(one.TimelineDropped, "moment is", "moments are"))
	}
}

func (m *markdown) cause(one *incident.Incident) {
	m.section("Cause: " + escape(one.Reason))
	s := view.Explaining(one)
	if meaning, _ := view.Runbook(one.Runtime, one.Reason); meaning != "" {
		m.printf("%s\n", escape(meaning))
	}
	if c := view.Chained(one); c != nil {
		m.printf("\nWho waited for whom at %s (%s):\n\n", c.At.UTC().Format("15:04:05"), escape(c.Reason))
		if view.BeginsWithCall(c) {
			m.printf("1. %s\n", view.KubeletLink)
		}
		for _, l := range c.Chain {
			m.printf("1. %s\n", escape(view.Link(l)))
		}
		if c.ChainEnd != "" {
			m.printf("\nNo further: %s.\n", escape(c.ChainEnd))
		}
	}
	m.printf("\n")
	rows := [][]string{{"Reason", "Severity", "Since", "Until", "Active for", "As the primary one"}}
	at := func(seconds float64) string {
		return one.At(seconds).UTC().Format("15:04:05")
	}
	for _, r := range one.Reasons {
		rows = append(rows, []string{escape(r.ID), escape(string(r.Severity)), at(r.First), at(r.Last), view.Float(r.Active), view.Float(r.Primary)})
	}
	m.table(rows)
	if s == nil {
		return
	}
	if lines := view.MomentFacts(s); len(lines) > 0 {
		m.printf("\nBesides:\n\n")
		m.list(lines)
	}
	if s.Next != "" {
		m.printf("\nWhat plegd advised:\n\n")
		m.commands(append([]string{s.Next}, s.Steps...))
	}
}

func (m *markdown) relists(one *incident.Incident) {
	m.section("Relists around it")
	m.printf("Before it: %s.\n\n", view.RelistsBefore(one.Relists))
	rows := [][]string{{"Began (UTC)", "Took", "Lists", "Result"}}
	list := view.IncidentRelists(one)
	if over := len(list) - relistsShown; over > 0 {
		list = list[over:]
	}
	for _, r := range list {
		lists, result := view.Seconds(r.ListPodSandbox)+" + "+view.Seconds(r.ListContainers), "done"
		switch {
		case r.Open:
			lists, result = "", "under way when last seen"
		case r.Err != nil:
			result = escape(view.Error(r.Err))
		}
		rows = append(rows, []string{r.Start.UTC().Format("15:04:05.000"), view.Seconds(r.End.Sub(r.Start)), lists, result})
	}
	if len(rows) > 1 {
		m.table(rows)
	}
}

// relistsShown is how many relists the markdown lists, the last ones.
const relistsShown = 20

// special are the characters that markdown or HTML would take for their own.
var special = strings.NewReplacer("\\", "\\\\", "`", "\\`", "*", "\\*", "[", "\\[", "<", "&lt;", "&", "&amp;", "|", "\\|")

// escape makes one line of plain text in markdown of a text from outside.
func escape(s string) string { return special.Replace(view.Say(s)) }

// escapeWords is escape for a text with commands in backticks, which stay.
func escapeWords(s string) string {
	parts := strings.Split(view.Say(s), "`")
	if len(parts)%2 == 0 {
		return escape(s)
	}
	for i := range parts {
		if i%2 == 0 {
			parts[i] = special.Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}
