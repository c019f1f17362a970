package view

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
)

const (
	columns    = 80 // width of the text, which only commands and long words exceed
	labelWidth = 11 // of the labels on its left
)

type writer struct {
	bytes.Buffer
	color bool
}

// WriteIncidents writes a list of incidents for a terminal.
func WriteIncidents(w io.Writer, list []incident.Summary) error {
	var t writer
	if len(list) == 0 {
		t.WriteString("no incidents\n")
	} else {
		s := Incidents(list)
		t.table(&s)
	}
	_, err := t.WriteTo(w)
	return err
}

// WriteText writes a whole document for a person at a terminal, with colors if color is true.
// Nothing in it can command the terminal: all text from outside has been escaped.
func (d *Document) WriteText(w io.Writer, color bool) error {
	t := &writer{color: color}
	t.headline(d)
	t.rows(&Section{Kind: Terms, Rows: d.Summary})
	for i := range d.Sections {
		s := &d.Sections[i]
		if s.Kind != Steps && s.Plot == nil { // steps follow the next step, the summary's last line
			t.WriteByte('\n')
		}
		switch s.Kind {
		case Terms, Items, Chain:
			t.WriteString(t.paint(dim, strings.ToUpper(s.Title)) + "\n")
			t.rows(s)
		case Steps:
			t.rows(s)
		case Table:
			t.table(s)
		}
	}
	_, err := t.WriteTo(w)
	return err
}

func (t *writer) headline(d *Document) {
	t.WriteString(t.paint(stateColors[d.State], strings.ToUpper(string(d.State))) + ": " + t.paint(bold, d.Title))
	if d.Detail != "" {
		t.WriteString(" (" + d.Detail + ")")
	}
	if d.Node != "" {
		t.WriteString(" on " + d.Node)
	}
	t.WriteString("\n")
}

// rows writes the lines of a section that is no table, and its note.
func (t *writer) rows(s *Section) {
	indent := "  "
	if s.Kind == Terms || s.Kind == Steps {
		indent = strings.Repeat(" ", labelWidth)
	}
	sub := indent + "- "
	if s.Kind == Items {
		sub = "    - "
	}
	for i, r := range s.Rows {
		bullet, text := rowText(s.Kind, i, &r)
		t.paragraph(bullet, text)
		for _, line := range r.Sub {
			t.paragraph(sub, line)
		}
	}
	if s.Footnote != "" {
		t.paragraph(indent, s.Footnote)
	}
}

// rowText returns a row of a section, and what stands before it.
func rowText(kind Kind, i int, r *Row) (bullet, text string) {
	switch kind {
	case Terms:
		return fmt.Sprintf("%-*s ", labelWidth-1, r.Label), r.Text
	case Steps:
		return strings.Repeat(" ", labelWidth), unbroken(fmt.Sprintf("%d. ", i+1)) + r.Text
	case Chain:
		bullet = "  " + strings.Repeat("  ", min(i, 7))
		if i > 0 {
			bullet += "-> "
		}
		return bullet, chainText(r)
	}
	if r.Label != "" {
		return "  - ", r.Label + " (" + r.Text + ")"
	}
	return "  - ", r.Text
}

func chainText(r *Row) string {
	text := r.Label + " " + r.Text
	if r.Mark == MarkCulprit {
		text += "  <== culprit"
	}
	return text
}

// The colors, as SGR parameters.
const (
	bold = "1"
	dim  = "2"
)

var stateColors = map[facts.State]string{
	facts.StateHealthy: "1;32", facts.StateDegraded: "1;33", facts.StateUnhealthy: "1;31",
	facts.StateStarting: "1;34", facts.StateUnknown: "1;34",
}

func (t *writer) paint(color, s string) string {
	if !t.color || strings.TrimSpace(s) == "" || color == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// paragraph writes text after a bullet, with its further lines below the first one.
func (t *writer) paragraph(bullet, text string) {
	width := utf8.RuneCountInString(bullet)
	for _, line := range wrap(command.ReplaceAllStringFunc(text, unbroken), columns-width) {
		t.WriteString(t.paint(dim, bullet) + line + "\n")
		bullet = strings.Repeat(" ", width)
	}
}

// noBreak stands for a space at which wrap does not break.
const noBreak = "\x00"

// command is a command in a text. It stays on one line, so that it can be pasted.
var command = regexp.MustCompile("`[^`]*`")

// unbroken returns s without backticks as one word to wrap.
func unbroken(s string) string { return strings.ReplaceAll(strings.Trim(s, "`"), " ", noBreak) }

// wrap breaks s into lines of at most width characters at spaces.
func wrap(s string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Split(strings.ReplaceAll(strings.Join(append(lines, line), "\n"), noBreak, " "), "\n")
}

// table writes rows in columns. Texts below a row are written after the table, once for the
// rows that have the same one.
func (t *writer) table(s *Section) {
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
		t.WriteString(strings.TrimRight(line, " \n") + "\n")
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
