package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Screen is the smallest height for which WriteBrief leaves nothing out that it should show.
const Screen = 24

// block is a label with paragraphs beside it.
type block struct {
	label string
	texts []string
	// lines is the most lines of one paragraph.
	lines int
	// keeps is above 0 for a block that loses paragraphs where the screen is too small; it is how
	// many others leave to it.
	keeps int
	// optional blocks go before that.
	optional bool
}

// WriteBrief writes what the first minute needs, in at most height lines of 80 columns: verdict,
// culprit, countdown, evidence, chain, next step and first step. moreBy is how to get the rest.
func (d *Document) WriteBrief(w io.Writer, color bool, height int, moreBy string) error {
	t := &writer{color: color}
	t.headline(d)
	for _, b := range fit(d.blocks(moreBy), height-1) {
		for n, line := range b.render() {
			label := ""
			if n == 0 {
				label = b.label
			}
			t.WriteString(t.paint(dim, fmt.Sprintf("%-*s", labelWidth, label)) + line + "\n")
		}
	}
	_, err := t.WriteTo(w)
	return err
}

// fit shortens blocks until they take at most height lines.
func fit(blocks []block, height int) []block {
	left := height
	needed := 0
	for i := range blocks {
		if blocks[i].keeps > 0 {
			needed += min(len(blocks[i].texts), blocks[i].keeps)
		} else {
			left -= blocks[i].height()
		}
	}
	for i := len(blocks) - 1; i >= 0 && left < needed; i-- {
		if blocks[i].optional {
			left += blocks[i].height()
			blocks[i].texts = nil
		}
	}
	for i := range blocks {
		b := &blocks[i]
		if b.keeps == 0 {
			continue
		}
		needed -= min(len(b.texts), b.keeps)
		b.limit(left - needed)
		left -= len(b.texts)
	}
	return blocks
}

// blocks are the parts of the brief text, the most urgent first.
func (d *Document) blocks(moreBy string) []block {
	var evidence, links, steps, others []string
	var chainEnd, missing string
	for _, s := range d.Sections {
		switch s.ID {
		case "evidence":
			evidence = texts(s.Rows)
		case "chain":
			for i := range s.Rows {
				links = append(links, briefLink(&s.Rows[i]))
			}
			chainEnd = s.Footnote
		case "todo":
			steps = texts(s.Rows)
		case "others":
			others = reasonLines(s.Rows)
		case "state":
			missing = labelled(s.Rows, "Missing")
		}
	}
	out := []block{
		term("Culprit", labelled(d.Summary, "Culprit"), 2),
		term("Last link", labelled(d.Summary, "Last link"), 2),
		term("Predicted", labelled(d.Summary, "Predicted"), 2),
		term("Message", labelled(d.Summary, "Message"), 2),
		{label: "Evidence", texts: evidence, lines: 1, keeps: 2},
		{label: "Chain", texts: links, lines: 1, keeps: 5},
		term("", chainEnd, 2),
		term("Next", labelled(d.Summary, "Next"), 2),
	}
	if len(steps) > 0 {
		out = append(out, term("First step", steps[0], 2))
	}
	also := block{label: "Also", texts: others, lines: 2}
	also.limit(2 * maxOthers)
	return append(out,
		term("Restart?", d.Restart, 1),
		optional(also),
		optional(term("Missing", missing, 1)),
		optional(term("Kubelet", labelled(d.Summary, "Kubelet"), 1)),
		term("Note", labelled(d.Summary, "Note"), 2),
		optional(term("More", moreBy, 1)),
	)
}

// maxOthers bounds the other active reasons that are shown, a line each, and one for the next step of each.
const maxOthers = 3

// reasonLines are active reasons, each with its culprit or its first evidence, and its next step.
func reasonLines(rows []Row) (out []string) {
	for _, r := range rows {
		text := r.Label + " (" + r.Text + ")"
		if len(r.Sub) > 0 {
			text += ": " + r.Sub[0]
		}
		out = append(out, text)
		i := slices.IndexFunc(r.Sub, func(line string) bool { return strings.HasPrefix(line, secondNext) })
		if i >= 0 {
			out = append(out, r.Sub[i])
		}
	}
	return out
}

func term(label, text string, maxLines int) block {
	b := block{label: label, lines: maxLines}
	if text != "" {
		b.texts = []string{text}
	}
	return b
}

func optional(b block) block {
	b.optional = true
	return b
}

// briefLink is a link of the chain in one line.
func briefLink(r *Row) string {
	const mark = "  <== culprit"
	text := r.Label + " " + r.Text
	if r.Mark == MarkCulprit {
		return shorten(text, columns-labelWidth-len(mark)) + mark
	}
	return text
}

// labelled returns the text of the row with a label, empty if there is none.
func labelled(rows []Row, label string) string {
	for _, r := range rows {
		if r.Label == label {
			return r.Text
		}
	}
	return ""
}

func texts(rows []Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.Text)
	}
	return out
}

// limit leaves paragraphs out of the middle until at most n are left.
func (b *block) limit(n int) {
	n = max(n, 1)
	excess := len(b.texts) - n
	if excess <= 0 {
		return
	}
	if n < 3 {
		b.texts = b.texts[:n]
		return
	}
	head := b.texts[:n/2]
	tail := b.texts[n/2+excess+1:]
	kept := append([]string{}, head...)
	kept = append(kept, fmt.Sprintf("(%d more)", excess+1))
	b.texts = append(kept, tail...)
}

// render returns the lines of a block. Only a command exceeds the width.
func (b *block) render() (out []string) {
	width := columns - labelWidth
	for _, text := range b.texts {
		wrapped := wrap(command.ReplaceAllStringFunc(text, unbroken), width)
		if len(wrapped) > b.lines {
			wrapped = wrapped[:b.lines]
			wrapped[b.lines-1] = shorten(wrapped[b.lines-1]+" ...", width)
		}
		for _, line := range wrapped {
			if !command.MatchString(text) {
				line = shorten(line, width)
			}
			out = append(out, line)
		}
	}
	return out
}

// height returns how many lines of a screen a block takes.
func (b *block) height() int {
	n := 0
	for _, line := range b.render() {
		n += (labelWidth + utf8.RuneCountInString(line) + columns - 1) / columns
	}
	return n
}
