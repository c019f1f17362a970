package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/docs/reasons"
)

// Page is the text of a reason: its page in docs/reasons, by heading. Next and Steps
// may hold words such as {pid}: see Generic.
type Page struct {
	// Meaning is one sentence; Evidence is what the reason needs, with its thresholds.
	Meaning, Evidence string
	// Next is what to do next, in one line; Steps are the commands in their order.
	Next  string
	Steps []string
	// Restart states whether a restart of the runtime helps, and its risk.
	Restart string
}

// headings are the headings of a page, in their order.
var headings = []string{"Meaning", "Evidence", "Next", "Steps", "Restart"}

// readPage returns the parsed page of a reason. Every binary embeds the same pages, so a
// page that is missing or lacks a heading is a programming error.
func readPage(id string) Page {
	b, err := reasons.Pages.ReadFile(id + ".md")
	if err != nil {
		panic(err)
	}
	p, err := parsePage(string(b))
	if err != nil {
		panic(fmt.Sprintf("docs/reasons/%s.md: %v", id, err))
	}
	return p
}

// parsePage splits a page at its headings.
func parsePage(text string) (Page, error) {
	sections := map[string]string{}
	var found []string
	for _, part := range strings.Split(text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		found = append(found, heading)
		sections[heading] = strings.TrimSpace(body)
	}
	if !slices.Equal(found, headings) {
		return Page{}, fmt.Errorf("headings %q, want %q", found, headings)
	}
	p := Page{Meaning: flat(sections["Meaning"]), Evidence: flat(sections["Evidence"]), Next: flat(sections["Next"]),
		Restart: flat(sections["Restart"])}
	for line := range strings.SplitSeq(sections["Steps"], "\n") {
		if number, step, ok := strings.Cut(line, ". "); ok && strings.Trim(number, "0123456789") == "" {
			p.Steps = append(p.Steps, step)
		} else if line != "" {
			return Page{}, fmt.Errorf("step %q has no number", line)
		}
	}
	for _, h := range headings {
		if sections[h] == "" {
			return Page{}, fmt.Errorf("%s is empty", h)
		}
	}
	return p, nil
}

// flat joins the lines of a section.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

// withPages returns the rows with their pages.
func withPages(rows ...[]Reason) []Reason {
	table := slices.Concat(rows...)
	for i := range table {
		table[i].Page = readPage(table[i].ID)
	}
	return table
}

// List is the table as `plegd reasons` prints it: one line a reason.
func List() string {
	var b strings.Builder
	for _, r := range table {
		fmt.Fprintf(&b, "%-30s %-9s %s\n", r.ID, r.Severity, r.Meaning)
	}
	return b.String()
}

// Text is all about a reason as `plegd reasons ID` prints it.
func (r *Reason) Text() string {
	var b strings.Builder
	severity := string(r.Severity)
	if r.criticalWhile != nil {
		severity += "; critical while calls are slow or hang"
	}
	fmt.Fprintf(&b, "%s (%s)\n%s\n\nEvidence: %s\nDoes restarting the runtime help? %s\n\nNext: %s\n", r.ID, severity,
		r.Meaning, r.Evidence, r.Restart, r.Next)
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, strings.ReplaceAll(s, "`", ""))
	}
	return Generic(b.String())
}
