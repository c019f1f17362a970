package text

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

const (
	// columns is the width of the text; only commands may be longer.
	columns = 80
	// labelWidth is the width of the labels on its left.
	labelWidth = 11
)

// WriteStatusText writes a snapshot for a person at a terminal, with colors if color is
// true. The most urgent facts come first, so that a screen of 24 lines is enough.
func WriteStatusText(w io.Writer, s *health.Snapshot, color bool) error {
	return write(w, view.Status(view.Content{Snapshot: s}), color)
}

// WritePublicText writes the public summary.
func WritePublicText(w io.Writer, p *view.Public, color bool) error {
	return write(w, p.Document(), color)
}

// WriteIncidentText writes one incident.
func WriteIncidentText(w io.Writer, one *incident.Incident, color bool) error {
	return write(w, view.Incident(one, nil), color)
}

// WriteIncidentsText writes a list of incidents.
func WriteIncidentsText(w io.Writer, list []incident.Summary, color bool) error {
	t := &writer{color: color}
	s := view.Incidents(list)
	if t.table(&s); len(list) == 0 {
		t.buf.Reset()
		t.buf.WriteString("no incidents\n")
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

type writer struct {
	buf   bytes.Buffer
	color bool
}

func write(w io.Writer, d *view.Document, color bool) error {
	t := &writer{color: color}
	head := t.paint(stateColors[d.State], strings.ToUpper(string(d.State))) + ": " + t.paint(bold, d.Title)
	if d.Detail != "" {
		head += " (" + d.Detail + ")"
	}
	if d.Node != "" {
		head += " on " + d.Node
	}
	t.buf.WriteString(head + "\n")
	for _, r := range d.Summary {
		t.term(r)
	}
	for i := range d.Sections {
		t.section(&d.Sections[i])
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

// section writes one section. Steps follow the summary without a title: the summary's last
// line, the next step, is theirs.
func (t *writer) section(s *view.Section) {
	if s.Plot != nil {
		return
	}
	if s.Kind != view.Steps {
		t.buf.WriteByte('\n')
	}
	if s.Kind != view.Steps && s.Kind != view.Table {
		t.buf.WriteString(t.paint(dim, strings.ToUpper(s.Title)) + "\n")
	}
	for i, r := range s.Rows {
		switch s.Kind {
		case view.Terms:
			t.term(r)
		case view.Steps:
			t.term(view.Row{Text: view.Unbroken(fmt.Sprintf("%d. ", i+1)) + r.Text})
		case view.Chain:
			t.link(i, r)
		case view.Items:
			t.item(r)
		}
	}
	if s.Kind == view.Table {
		t.table(s)
	}
	if s.Note != "" {
		indent := "  "
		if s.Kind == view.Steps {
			indent = strings.Repeat(" ", labelWidth)
		}
		t.paragraph(indent, s.Note)
	}
}

// The colors, as SGR parameters.
const (
	bold = "1"
	dim  = "2"
)

var stateColors = map[health.State]string{
	health.StateHealthy: "1;32", health.StateDegraded: "1;33", health.StateUnhealthy: "1;31",
	health.StateStarting: "1;34", health.StateUnknown: "1;34",
}

func (t *writer) paint(color, s string) string {
	if !t.color || s == "" || color == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// term writes a label and its text.
func (t *writer) term(r view.Row) {
	label := r.Label
	for _, line := range view.Wrap(commands(r.Text), columns-labelWidth) {
		t.buf.WriteString(t.paint(dim, label) + strings.Repeat(" ", max(1, labelWidth-len(label))) + line + "\n")
		label = ""
	}
	t.sub(r, strings.Repeat(" ", labelWidth)+"- ")
}

func (t *writer) item(r view.Row) {
	text := r.Text
	if r.Label != "" {
		text = strings.TrimSuffix(r.Label+" ("+r.Text+")", " ()")
	}
	t.paragraph("  - ", commands(text))
	t.sub(r, "    - ")
}

func (t *writer) link(depth int, r view.Row) {
	text := r.Label + " " + r.Text
	if r.Mark == view.MarkCulprit {
		text += "  <== culprit"
	}
	arrow := "-> "
	if depth == 0 {
		arrow = ""
	}
	t.paragraph("  "+strings.Repeat("  ", min(depth, 7))+arrow, text)
}

func (t *writer) sub(r view.Row, bullet string) {
	for _, text := range r.Sub {
		t.paragraph(bullet, text)
	}
}

// paragraph writes text after a bullet, with its further lines below the first one.
func (t *writer) paragraph(bullet, text string) {
	for _, line := range view.Wrap(text, columns-utf8.RuneCountInString(bullet)) {
		t.buf.WriteString(bullet + line + "\n")
		bullet = strings.Repeat(" ", utf8.RuneCountInString(bullet))
	}
}

var command = regexp.MustCompile("`[^`]*`")

// commands removes the backticks. A command stays on one line, so that it can be pasted.
func commands(text string) string {
	return command.ReplaceAllStringFunc(text, func(c string) string { return view.Unbroken(strings.Trim(c, "`")) })
}

// table writes rows in columns. Texts below a row are written after the table, once for the
// rows that have the same one.
func (t *writer) table(s *view.Section) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(s.Heads, "\t")))
	names := map[string][]string{}
	for _, r := range s.Rows {
		fmt.Fprintln(w, strings.Join(r.Cells, "\t"))
		for _, text := range r.Sub {
			names[text] = append(names[text], r.Cells[0])
		}
	}
	_ = w.Flush() // into memory
	for line := range strings.Lines(b.String()) {
		t.buf.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	for _, r := range s.Rows {
		for _, text := range r.Sub {
			if names[text] != nil {
				t.paragraph("  ! ", strings.Join(names[text], ", ")+": "+text)
			}
			names[text] = nil
		}
	}
}
