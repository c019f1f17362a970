package health

import (
	"fmt"
	"strings"
)

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
	fmt.Fprintf(&b, "%s (%s)\n%s\n\n", r.ID, r.severityText(), r.Meaning)
	fmt.Fprintf(&b, "Evidence: %s\n", r.Needs)
	if len(r.Thresholds) > 0 {
		fmt.Fprintf(&b, "Thresholds: %s\n", thresholdsText(r.Thresholds))
	}
	if len(r.For) > 0 {
		fmt.Fprintf(&b, "Runtimes: %s\n", versionsText(r.For))
	}
	fmt.Fprintf(&b, "Does restarting the runtime help? %s\n\nNext: %s\n", r.RestartAnswer(), r.Next)
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, strings.ReplaceAll(s, "`", ""))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "On %s: %s\n", versionsText(n.For), strings.ReplaceAll(n.Text(), "`", ""))
	}
	if note := r.pageWords(); note != "" {
		fmt.Fprintf(&b, "%s\n", strings.ReplaceAll(note, "`", ""))
	}
	return genericSteps.Replace(b.String())
}

// severityText is the severity, with that of other cases where it has one.
func (r *Reason) severityText() string {
	out := string(r.Severity)
	if r.criticalWhile != nil {
		out += "; critical while calls suffer"
	}
	return out
}

// RestartAnswer says whether restarting the runtime can help, in a sentence or
// two.
func (r *Reason) RestartAnswer() string { return restartAnswer(r.Restart, r.RestartNote) }

func restartAnswer(help Help, note string) string {
	s := strings.ToUpper(string(help[:1])) + string(help[1:]) + "."
	if note != "" {
		s += " " + note
	}
	return s
}

// Text is what the note says, in a sentence or more.
func (n *VersionNote) Text() string {
	var parts []string
	for _, s := range []string{n.Next, n.Step} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if n.Restart != "" {
		parts = append(parts, "Does restarting the runtime help? "+restartAnswer(n.Restart, n.RestartNote))
	}
	return strings.Join(parts, " ")
}

// Page is the reason's runbook page, in Markdown.
func (r *Reason) Page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n\n", r.ID, pageNote, r.Meaning)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| Severity | %s |\n| Evidence needed | %s |\n", r.severityText(), r.Needs)
	if len(r.Thresholds) > 0 {
		fmt.Fprintf(&b, "| Thresholds | %s |\n", thresholdsText(r.Thresholds))
	}
	if len(r.For) > 0 {
		fmt.Fprintf(&b, "| Runtimes | %s |\n", versionsText(r.For))
	}
	fmt.Fprintf(&b, "| Does restarting the runtime help? | %s |\n", r.RestartAnswer())
	fmt.Fprintf(&b, "\n## What to do\n\n%s\n\n", r.Next)
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, s)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\nBy version:\n\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s: %s\n", versionsText(n.For), n.Text())
		}
	}
	if note := r.pageWords(); note != "" {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	if len(r.Steps) > 0 {
		b.WriteString("\nk3s, RKE2 and other distributions have units and paths of their own; Talos and Bottlerocket have no shell for these commands: [platforms](../platforms.md).\n")
	}
	if r.Restart != HelpsNo {
		b.WriteString("\nBefore a restart, keep the evidence: `sudo plegd bundle` ([what it holds](../troubleshooting.md#3-before-you-restart-anything)).\n")
	}
	fmt.Fprintf(&b, "\n## Is it over?\n\n`plegd status` on the node no longer reports it, and in Prometheus `pleg_reason{reason=\"%s\"}` is 0. [All reasons](README.md) · [A node is NotReady, step by step](../troubleshooting.md)\n", r.ID)
	return genericSteps.Replace(b.String())
}

const pageNote = "<!-- Generated from internal/health/reasons.go by `make generate`. -->"

// Index is the page that lists the reasons, in Markdown.
func Index() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Reasons\n\n%s\n\nEvery reason that plegd can name. When several are active, the primary one is the\nmost severe one; of equally severe ones that of the lowest layer, then the one\nfurther up here.\n\n", pageNote)
	b.WriteString("| Reason | Severity | Meaning |\n|---|---|---|\n")
	for _, r := range table {
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s |\n", r.ID, r.ID, r.Severity, r.Meaning)
	}
	return b.String()
}

// Pages returns every page below docs/reasons by its file name.
func Pages() map[string]string {
	pages := map[string]string{"README.md": Index()}
	for i := range table {
		pages[table[i].ID+".md"] = table[i].Page()
	}
	return pages
}
