package view

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

// Document is a snapshot or an incident in words. The terminal and the page print the same
// document, so that each fact has one phrase.
type Document struct {
	Node  string
	State health.State
	// Title is the primary reason, or a few words where there is none; Detail is how severe
	// it is and since when.
	Title, Detail string
	// Reason is the ID of the title's reason, if it is one; Meaning explains it.
	Reason, Meaning string
	Clock           Clock
	// Summary is what the first screen of a terminal has to hold, beside the first section.
	Summary  []Row
	Sections []Section
}

// Clock is what the page shows beside the verdict.
type Clock struct {
	// Big is the time left, or a word in its place; Small explains it.
	Big   string
	Small []string
	// Age is the age of Of, which the deciding rule watches; Limit is that rule's limit. A
	// Limit of 0 means that there is nothing to measure.
	Age, Limit time.Duration
	Of         string
}

// Kind is how the lines of a section are laid out.
type Kind string

// The kinds of sections.
const (
	Terms Kind = "terms" // labels and texts
	Items Kind = "items" // a list
	Steps Kind = "steps" // a numbered list
	Chain Kind = "chain" // links, each of which waits for the next
	Table Kind = "table"
)

// Section is a part of a document.
type Section struct {
	// ID identifies the section in a page.
	ID, Title string
	Kind      Kind
	// Heads are the heads of a table's columns. The first one stands for the title.
	Heads []string
	Rows  []Row
	// Note follows the lines.
	Note string
	// Plot is drawn by the page only.
	Plot *Plot
	// Column is the half of a wide screen in which the section stands; 0 for all of it.
	Column int
}

// Row is a line of a section or of a table.
type Row struct {
	// Text may hold commands in backticks.
	Label, Text string
	// Cells are the columns of a row.
	Cells []string
	// Sub are lines below this one.
	Sub []string
	// Mark is a state, or one of the marks below.
	Mark string
	// Link is a path that has more.
	Link string
}

// The marks of lines.
const (
	MarkBad     = "bad"
	MarkCulprit = "culprit"
)

// terms returns the rows that have a text.
func terms(lines ...Row) (out []Row) {
	for _, l := range lines {
		if l.Text != "" {
			out = append(out, l)
		}
	}
	return out
}

// items returns a row for each text.
func items(texts []string) (out []Row) {
	for _, t := range texts {
		out = append(out, Row{Text: Say(t)})
	}
	return out
}

// filled returns the sections that have lines or a plot.
func filled(sections ...Section) (out []Section) {
	for _, s := range sections {
		if len(s.Rows) > 0 || s.Plot != nil {
			out = append(out, s)
		}
	}
	return out
}

// said makes texts from outside fit to be shown.
func said(texts []string) (out []string) {
	for _, t := range texts {
		out = append(out, Say(t))
	}
	return out
}
