package text

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

const (
	// textWidth is the most columns of the terminal text.
	textWidth = 80
	// textLabel is the width of the labels on its left.
	textLabel = 11
)

// WriteStatusText writes d for a person at a terminal, at most 80 columns wide but
// for commands, and with colors where color is true. Nothing in it can make the terminal do
// anything: whatever comes from the runtime is escaped. The most urgent comes
// first, so that the first screen is enough.
func WriteStatusText(w io.Writer, d *health.Snapshot, color bool) error {
	t := &textWriter{color: color, width: textWidth, longLines: true}
	t.status(d)
	_, err := w.Write(t.buf.Bytes())
	return err
}

// WritePublicText writes the public summary for a person at a terminal.
func WritePublicText(w io.Writer, p *view.Public, color bool) error {
	t := &textWriter{color: color, width: textWidth, longLines: true}
	d := p.Snapshot()
	t.verdict(d)
	t.buf.WriteByte('\n')
	t.row("Meaning", view.Say(p.Meaning))
	t.row("Culprit", view.Say(string(p.CulpritKind)))
	t.row("Seen as", view.Say(p.Symptom))
	t.row("Time left", view.TimeLeft(d))
	t.next(d)
	t.row("Note", "this is the public summary; plegd status on the node, or with --user, has the evidence")
	_, err := w.Write(t.buf.Bytes())
	return err
}

// status writes the summary, which fits a screen of 80x24, then the evidence, the
// state of each part, and last what repeats it.
func (t *textWriter) status(d *health.Snapshot) {
	t.verdict(d)
	if d.Culprit != nil {
		t.row(view.CulpritLabel(d), view.CulpritLine(d))
	}
	t.row("Predicted", view.Outlook(d))
	t.row("Message", view.Say(d.KubeletMessage))
	t.next(d)
	t.buf.WriteByte('\n')
	primary, others := view.SplitReasons(&d.Verdict)
	if primary != nil {
		t.evidence("  - ", view.BesideChain(d, primary.Evidence))
	}
	t.chain(d)
	t.state(d)
	t.tables(d)
	t.others(d, others)
}

// tables are the calls and the pods.
func (t *textWriter) tables(d *health.Snapshot) {
	t.operations(d)
	t.pods(d, "STUCK PODS", "UNDER WAY", view.StuckPods(d))
	t.pods(d, "FAILING PODS", "TOOK", d.Facts.Relist.Failing)
	t.failures(d.Facts.Relist.Failing)
	t.pods(d, "SLOWEST PODS", "TOOK", d.Facts.Relist.Slowest)
}

type textWriter struct {
	buf   bytes.Buffer
	color bool
	// width is the most columns; 0 means textWidth.
	width int
	// longLines lets a command be longer than that.
	longLines bool
}

// The colors, as SGR parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "1;33"
	blue   = "1;34"
)

func (t *textWriter) columns() int {
	if t.width == 0 {
		return textWidth
	}
	return t.width
}

func (t *textWriter) paint(color, s string) string {
	if !t.color || s == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func stateColor(state health.State) string {
	switch state {
	case health.StateHealthy:
		return green
	case health.StateDegraded:
		return yellow
	case health.StateUnhealthy:
		return red
	default:
		return blue
	}
}

// verdict is the first line.
func (t *textWriter) verdict(d *health.Snapshot) {
	t.buf.WriteString(t.paint(stateColor(d.State), strings.ToUpper(view.Say(string(d.State)))))
	primary, _ := view.SplitReasons(&d.Verdict)
	switch {
	case primary != nil:
		fmt.Fprintf(&t.buf, ": %s (%s), %s", t.paint(bold, view.Say(primary.ID)), view.Say(string(primary.Severity)), view.For(d, primary.Since))
	case !d.Since.IsZero():
		t.buf.WriteString(", " + view.For(d, d.Since))
	}
	if d.Node != "" {
		t.buf.WriteString(", on " + view.Say(d.Node))
	}
	t.buf.WriteByte('\n')
}

// others are the reasons beside the primary one.
func (t *textWriter) others(d *health.Snapshot, others []health.Active) {
	if len(others) > 0 {
		t.buf.WriteByte('\n')
	}
	for _, r := range others {
		title := fmt.Sprintf("also %s (%s), %s", view.Say(r.ID), view.Say(string(r.Severity)), view.For(d, r.Since))
		t.buf.WriteString(title + "\n")
		t.evidence("  - ", r.Evidence)
	}
}

// chain is the chain of waiting, from the kubelet to the culprit.
func (t *textWriter) chain(d *health.Snapshot) {
	if !view.ShowsChain(d) {
		return
	}
	t.buf.WriteString("  Chain of waiting:\n")
	if view.BeginsWithCall(d) {
		t.buf.WriteString("    " + view.KubeletLink + "\n")
	}
	for i, l := range d.Chain {
		text := view.Link(l)
		if view.IsCulprit(d, i) {
			text += "  <== culprit"
		}
		t.paragraph("    "+strings.Repeat("  ", min(i, 6))+"-> ", text)
	}
	if d.ChainEnd != "" {
		t.paragraph("    ", "no further: "+view.Say(d.ChainEnd))
	}
}

func (t *textWriter) evidence(bullet string, evidence []string) {
	for _, e := range evidence {
		t.paragraph(bullet, view.Say(e))
	}
}

// next is what to do.
func (t *textWriter) next(d *health.Snapshot) {
	t.step("Next", d.Next)
	for i, step := range d.Steps {
		t.step("", fmt.Sprintf("%d. %s", i+1, step))
	}
}

// state is the current state of each part.
func (t *textWriter) state(d *health.Snapshot) {
	t.buf.WriteByte('\n')
	t.row("Last seen", view.LastSeen(d))
	if s := view.InFlight(d); s != "" {
		t.row("Relist", s)
		t.row("", "the last one "+view.LastRelist(d))
	} else {
		t.row("Relist", view.LastRelist(d))
	}
	t.row("Status", view.StatusCheck(d))
	t.row("Model", view.Settings(d))
	t.row("Fresh dial", view.Probe(d))
	t.row("Runtime", view.Runtime(d))
	t.row("Events", view.Events(d))
	for _, r := range view.EvidenceRows(d) {
		t.row(r.Label, r.Text)
	}
	t.row("Pods", view.Pods(d))
}

func (t *textWriter) operations(d *health.Snapshot) {
	operations := view.OperationRows(d)
	if len(operations) == 0 {
		return
	}
	rows := [][]string{{"OPERATION", "LAST OK", "TOOK", "IN FLIGHT", "LAST ERROR"}}
	for _, o := range operations {
		rows = append(rows, []string{view.Shorten(o.Name, 24), o.LastOK, o.Took, o.InFlight, view.Shorten(o.LastError, 34)})
	}
	t.buf.WriteByte('\n')
	t.table(rows, "lrrrl")
	// One fault mostly makes several operations fail, with the same words.
	for i, o := range operations {
		names := []string{o.Name}
		for _, other := range operations[i+1:] {
			if other.Failing == o.Failing {
				names = append(names, other.Name)
			}
		}
		said := slices.ContainsFunc(operations[:i], func(before view.OperationRow) bool { return before.Failing == o.Failing })
		if o.Failing != "" && !said {
			t.paragraph("  ! ", strings.Join(names, ", ")+": "+o.Failing)
		}
	}
}

func (t *textWriter) pods(d *health.Snapshot, title, took string, pods []health.PodInspection) {
	if len(pods) == 0 {
		return
	}
	rows := [][]string{{title, took, "IN", "RESULT"}}
	for i := range pods {
		p := &pods[i]
		row := []string{view.Shorten(view.PodName(p), 48), view.PodTook(d, p), view.Shorten(plain.Text(p.Operation), 18), ""}
		if p.Err != nil {
			row[3] = "failed" // why is listed below
			if p.Failures > 1 {
				row[3] += fmt.Sprintf(" x%d", p.Failures)
			}
		}
		rows = append(rows, row)
	}
	t.buf.WriteByte('\n')
	t.table(rows, "lrll")
}

// failures says in full why the inspection of each failing pod failed.
func (t *textWriter) failures(pods []health.PodInspection) {
	for i := range pods {
		if p := &pods[i]; p.Err != nil && p.Err.Message != "" {
			t.paragraph("  ! ", view.PodName(p)+": "+view.Error(p.Err))
		}
	}
}

// row writes a label and its text, broken under itself. A row without text is
// left out.
func (t *textWriter) row(label, text string) {
	if text == "" {
		return
	}
	for i, line := range view.Wrap(text, t.columns()-textLabel) {
		if i > 0 {
			label = ""
		}
		t.buf.WriteString(t.paint(dim, label) + strings.Repeat(" ", textLabel-len(label)) + line + "\n")
	}
}

var command = regexp.MustCompile("`[^`]*`")

// step writes a text that holds commands. A command stays on one line, so that it can be
// pasted; one that is longer than a line only where lines may be longer.
func (t *textWriter) step(label, text string) {
	width := t.columns() - textLabel - len(": ")
	t.row(label, command.ReplaceAllStringFunc(view.Say(text), func(c string) string {
		c = strings.Trim(c, "`")
		if t.longLines || utf8.RuneCountInString(c) <= width {
			return view.Unbroken(c)
		}
		return c
	}))
}

// paragraph writes text after a bullet, broken under itself.
func (t *textWriter) paragraph(bullet, text string) {
	for i, line := range view.Wrap(text, t.columns()-len(bullet)) {
		if i > 0 {
			bullet = strings.Repeat(" ", len(bullet))
		}
		t.buf.WriteString(bullet + line + "\n")
	}
}

// table writes rows in columns, the first row as their heads; align holds an l
// or an r for each column.
func (t *textWriter) table(rows [][]string, align string) {
	widths := make([]int, len(align))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if align[i] == 'r' {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		s := strings.TrimRight(line.String(), " ")
		if n == 0 {
			s = t.paint(dim, s)
		}
		t.buf.WriteString(s + "\n")
	}
}
