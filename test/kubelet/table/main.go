// Command table writes what make e2e-kubelet or make e2e-cluster recorded into
// docs/results/kubelet.md, one line a scenario and kubelet version, and into a test for
// promtool that replays it against the alert rules. Of docs/results/kubelet.md it changes what stands between two
// marks and nothing else.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/results"
)

func main() {
	dir := flag.String("results", "build/kubelet", "directory of the recordings")
	page := flag.String("write", "", "page to write the table into; empty: print it")
	command := flag.String("command", "make e2e-kubelet", "what made the recordings: its name is in the page's marks")
	alerts := flag.String("alerts", "", "promtool test to write; empty: none")
	flag.Parse()
	if err := run(*dir, *command, *page, *alerts); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(dir, command, page, alerts string) error {
	recordings, err := record.Load(dir)
	if err != nil {
		return err
	}
	if alerts != "" {
		if err := writeAlerts(recordings, alerts); err != nil {
			return err
		}
	}
	return results.WritePage(page, command, table(recordings))
}

// group is the runs of one scenario with one kubelet.
type group []*record.Comparison

func groups(recordings []*record.Recording) []group {
	var all []group
	for i, r := range recordings {
		c := record.Compare(r)
		if i > 0 && recordings[i-1].Place == r.Place && recordings[i-1].Kubelet == r.Kubelet {
			all[len(all)-1] = append(all[len(all)-1], c)
		} else {
			all = append(all, group{c})
		}
	}
	return all
}

func table(recordings []*record.Recording) string {
	all := groups(recordings)
	var b strings.Builder
	newest := recordings[0]
	commits := map[string]bool{}
	good := 0
	for _, r := range recordings {
		if r.Date.After(newest.Date) {
			newest = r
		}
		commits[r.Commit] = true
	}
	for _, g := range all {
		good += g.good()
	}
	fmt.Fprintf(&b, "\nMeasured on %s with plegd %s: %d of %d runs are within the limits.\n\n",
		newest.Date.UTC().Format("2006-01-02"), strings.Join(sorted(commits), ", "), good, len(recordings))
	b.WriteString("| scenario | kubelet, runtime | runs good | predicted at +5 s | at +10 s | at +20 s | rules failed: plegd | sync loop | difference | API NotReady | Ready again: API | plegd | message | plegd's commit |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range all {
		b.WriteString(g.row())
	}
	reasons(&b, all)
	deviations(&b, all)
	return b.String()
}

func sorted(set map[string]bool) []string {
	var out []string
	for s := range set {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func (g group) good() (n int) {
	for _, c := range g {
		if len(c.Problems) == 0 {
			n++
		}
	}
	return n
}

func (g group) row() string {
	r := g[0].Recording
	cells := []string{
		r.Scenario, "v" + r.Kubelet + ", " + r.Runtime, fmt.Sprintf("%d of %d", g.good(), len(g)),
		g.each(func(c *record.Comparison) string { return c.Predictions[0].String() }),
		g.each(func(c *record.Comparison) string { return c.Predictions[1].String() }),
		g.each(func(c *record.Comparison) string { return c.Predictions[2].String() }),
		g.each(func(c *record.Comparison) string { return record.Seconds(c.RulesFailed) }),
		g.each(sync),
		g.each(difference),
		g.each(func(c *record.Comparison) string { return moments(c.API, false) }),
		g.each(func(c *record.Comparison) string { return moments(c.API, true) }),
		g.each(func(c *record.Comparison) string {
			return cmp.Or(moments(c.Plegd, true), strings.Join(c.Perhaps, ", "))
		}),
		g.each(func(c *record.Comparison) string { return c.Message }),
		g.each(func(c *record.Comparison) string { return c.Recording.Commit }),
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// each joins what the runs showed; once where all showed the same.
func (g group) each(show func(*record.Comparison) string) string {
	var parts []string
	for _, c := range g {
		s := show(c)
		if s == "" {
			s = "–"
		}
		parts = append(parts, s)
	}
	if parts = slices.Compact(parts); len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, "; ")
}

func sync(c *record.Comparison) string {
	if c.Recording.LoopSilent {
		return "not comparable"
	}
	return record.Seconds(c.Skipped)
}

func difference(c *record.Comparison) string {
	if c.Recording.LoopSilent || c.RulesFailed == nil || c.Skipped == nil {
		return ""
	}
	return fmt.Sprintf("%+.1f s", *c.RulesFailed-*c.Skipped)
}

func moments(turns []record.Turn, ready bool) string {
	var parts []string
	for _, t := range turns {
		if ready {
			parts = append(parts, record.Seconds(t.Ready))
		} else {
			parts = append(parts, record.Seconds(&t.NotReady))
		}
	}
	if len(parts) == 0 && !ready {
		return "never"
	}
	return strings.Join(parts, ", ")
}

// reasons lists the scenarios in which plegd must name the kubelet itself.
func reasons(b *strings.Builder, all []group) {
	first := true
	for _, g := range all {
		r := g[0].Recording
		if r.WantReason == "" {
			continue
		}
		if first {
			b.WriteString("\nThe kubelet itself, its metrics read on the authenticated port with a token:\n\n" +
				"| scenario | kubelet | reason | named after | gone after the recovery |\n|---|---|---|---|---|\n")
			first = false
		}
		fmt.Fprintf(b, "| %s | v%s | %s | %s | %s |\n", r.Scenario, r.Kubelet, r.WantReason,
			g.each(func(c *record.Comparison) string { return record.Seconds(c.ReasonNamed) }),
			g.each(func(c *record.Comparison) string { return record.Seconds(c.ReasonGone) }))
	}
}

// deviations lists the runs that were not within the limits.
func deviations(b *strings.Builder, all []group) {
	first, cause := true, ""
	for _, g := range all {
		for _, c := range g {
			if len(c.Problems) == 0 {
				continue
			}
			if first {
				b.WriteString("\nRuns outside the limits:\n\n")
				first = false
			}
			r := c.Recording
			fmt.Fprintf(b, "- %s, kubelet v%s, %s, run %d: %s.", r.Scenario, r.Kubelet, r.Runtime, r.Run, strings.Join(c.Problems, "; "))
			if r.Deviation != "" && r.Deviation != cause { // once for the runs of a scenario
				fmt.Fprintf(b, " Cause: %s.", r.Deviation)
			}
			cause = r.Deviation
			b.WriteString("\n")
		}
	}
}
