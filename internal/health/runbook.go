package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/docs/reasons"
)

// Page is the text of a reason: the front matter of its page, then the page by heading. Next and
// Steps may hold words such as {pid}: see Generic. Its JSON is what reasons -o json prints.
type Page struct {
	// Cause states the fault, and NextLine the next step, in one line each of at most 128 bytes,
	// without any name from the node: alerts have them.
	Cause    string `json:"cause"`
	NextLine string `json:"next_line"`
	// Meaning is one sentence.
	Meaning string `json:"meaning"`
	// Evidence is what the reason needs, and Thresholds the numbers in it.
	Evidence   string      `json:"evidence"`
	Thresholds []Threshold `json:"thresholds"`
	// Next is what to do next, in one line.
	Next string `json:"next"`
	// Steps are the commands in their order.
	Steps []string `json:"steps"`
	// Restart states whether a restart of the runtime helps, and its risk.
	Restart string `json:"restart"`
}

// Generic returns the page with generic values for its words.
func (p Page) Generic() Page {
	p.Next = generic(p.Next)
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		p.Steps[i] = generic(p.Steps[i])
	}
	return p
}

// parsePage reads a page: the front matter's fields, then the sections. Steps are numbered lines.
func parsePage(text string) Page {
	_, text, _ = strings.Cut(text, "---\n")
	front, body, _ := strings.Cut(text, "---\n")
	p := Page{Cause: frontField(front, "cause"), NextLine: frontField(front, "next")}
	sections := map[string]*string{"Meaning": &p.Meaning, "Evidence": &p.Evidence, "Next": &p.Next, "Restart": &p.Restart}
	for _, part := range strings.Split(body, "\n## ")[1:] {
		heading, content, _ := strings.Cut(part, "\n")
		content, _, _ = strings.Cut(content, "\n|") // a table is the reason's Thresholds
		if section := sections[heading]; section != nil {
			*section = strings.Join(strings.Fields(content), " ")
			continue
		}
		p.Steps = steps(content)
	}
	return p
}

// frontField returns a field of a front matter, "" for one that it does not have.
func frontField(front, name string) string {
	for line := range strings.Lines(front) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// steps returns the texts of numbered lines.
func steps(section string) (out []string) {
	for line := range strings.Lines(section) {
		if _, step, ok := strings.Cut(strings.TrimSpace(line), ". "); ok {
			out = append(out, step)
		}
	}
	return out
}

// withPages reads the page of each row. Every binary embeds the same pages, so a missing one is a programming error.
func withPages(rows []Reason) []Reason {
	for i := range rows {
		text, err := reasons.Pages.ReadFile(rows[i].ID + ".md")
		if err != nil {
			panic(err)
		}
		rows[i].Page = parsePage(string(text))
		rows[i].Thresholds = thresholdsOf(rows[i].ID)
	}
	return rows
}

// List is the table as `plegd reasons` prints it: one line a reason.
func List() string {
	var b strings.Builder
	for _, r := range table {
		fmt.Fprintf(&b, "%-30s %-17s %s\n", r.ID, r.severities(), r.Meaning)
	}
	return b.String()
}

// severities are the severities that the reason may have, in words; its Evidence says when it is critical.
func (r *Reason) severities() string {
	if r.CriticalWhile != nil {
		return string(r.Severity) + ", critical"
	}
	return string(r.Severity)
}

// Text is all about a reason as `plegd reasons ID` prints it.
func (r *Reason) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n%s\n\nEvidence: %s\n", r.ID, r.severities(), r.Meaning, r.Evidence)
	for _, t := range r.Thresholds {
		fmt.Fprintf(&b, "  %s: %s\n", t.What, t.Value)
	}
	fmt.Fprintf(&b, "Does restarting the runtime help? %s\n\nNext: %s\n", r.Restart, r.Next)
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, strings.ReplaceAll(s, "`", ""))
	}
	return generic(b.String())
}
