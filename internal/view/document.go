// Package view renders snapshots and incidents as documents: sections of lines in words.
// A document can be written for a terminal and as a page. The package reads plain values
// only and judges nothing.
package view

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// The paths that plegd serves. /healthz is the node's health, /-/healthy and /-/ready are
// plegd's own. One incident is under the paths of incidents, by its id.
const (
	PathMetrics       = "/metrics"
	PathHealthz       = "/healthz"
	PathHealthy       = "/-/healthy"
	PathReady         = "/-/ready"
	PathStatus        = "/api/v1/status"
	PathIncidents     = "/api/v1/incidents"
	PathIncidentPages = "/incidents"
)

// Document is a snapshot or an incident in words. The terminal and the page print the same
// document, so that each fact has one phrase.
type Document struct {
	Node  string
	State facts.State
	// Title is the primary reason, or a few words where there is none; Detail is how severe
	// it is and since when.
	Title, Detail string
	// Reason is the ID of the title's reason, if it is one; Meaning explains it; Restart says in
	// one line whether a restart of the runtime helps.
	Reason, Meaning, Restart string
	Clock                    Clock
	// Summary is what the first screen of a terminal has to hold, beside the first section.
	Summary  []Row
	Sections []Section
	// Version is plegd's, Taken the time of its facts. A live document changes.
	Version string
	Taken   time.Time
	Live    bool
}

// Clock is what the page shows beside the verdict.
type Clock struct {
	// Big is the time left, or a word in its place; Small explains it.
	Big   string
	Small []string
	// Age is the age of Watched, which the deciding rule watches; Limit is that rule's limit. A
	// Limit of 0 means that there is nothing to measure.
	Age, Limit time.Duration
	Watched    string
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
	ID, Title string
	Kind      Kind
	// Heads are the heads of a table's columns. The first one stands for the title.
	Heads    []string
	Rows     []Row
	Footnote string // follows the lines
	Plot     *Plot  // drawn by the page only
	// Column is the half of a wide screen in which the section stands; 0 for all of it.
	Column int
}

// Row is a line of a section or of a table. Text may hold commands in backticks; Cells are
// the columns of a table's row; Sub are lines below this one; Link is a path that has more.
type Row struct {
	Label, Text string
	Cells, Sub  []string
	// Mark is a state, or one of the marks below.
	Mark string
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
	for _, t := range printables(texts) {
		out = append(out, Row{Text: t})
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

// joined returns the parts that are not empty as one line.
func joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "; ")
}

// maxText is the most characters of one message that is shown to a person. A
// runtime may say more; /api/v1/status has all of it.
const maxText = 700

// Printable makes a text from outside fit to be shown to a person.
func Printable(s string) string { return shorten(plain.Text(s), maxText) }

func printables(texts []string) (out []string) {
	for _, t := range texts {
		out = append(out, Printable(t))
	}
	return out
}

// shorten cuts s to at most n characters, the last of them dots: after a word, where that leaves half of them.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	kept := string(r[:n-len("...")])
	if end := strings.LastIndexByte(kept, ' '); r[n-len("...")] != ' ' && end > len(kept)/2 {
		kept = kept[:end]
	}
	return strings.TrimRight(kept, " ,;:.") + "..."
}

// WriteJSON writes v as indented JSON, with durations in seconds and without characters
// that a terminal interprets. It writes nothing if v cannot be encoded.
func WriteJSON(w io.Writer, v any) error {
	b, err := facts.Marshal(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(plain.JSON(b), '\n'), "", "  "); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}
