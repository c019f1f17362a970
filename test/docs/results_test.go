package docs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

var update = flag.Bool("update", false, "write into pages of results since which commits internal/ has changed")

var (
	measured = regexp.MustCompile(`(?s)<!-- (?:begin results|bench):.*?<!-- end`)
	// commit is what the tools write: a line of its own, a cell after a date, a sentence.
	commit = regexp.MustCompile(`(?:commit |\d{4}-\d\d-\d\d, |with plegd )([0-9a-f]{7,40})\b`)
	// basis is what a page says of the commits of its tables: the ones that it lists have another internal/.
	basis = regexp.MustCompile(`(?m)^((?:Each|The) table names the commit that it was measured at\.)(?: internal/ has changed since ([0-9a-f, ]+)\.)?$`)
)

// TestMeasured: each table of results says at which commit it was measured, or that it was not, and
// its page since which of these commits internal/ has changed. A clone without a commit cannot tell.
func TestMeasured(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "docs/results/*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no results: %v", err)
	}
	for _, path := range append(paths, filepath.Join(root, "docs/comparison.md")) {
		b, err := os.ReadFile(path)
		must.Do(t, err)
		text := string(b)
		tables := measured.FindAllString(text, -1)
		if len(tables) == 0 {
			t.Errorf("%s has no table that a tool wrote", path)
		}
		for _, table := range tables {
			if !commit.MatchString(table) && !strings.Contains(table, "\nNot measured.\n") {
				t.Errorf("%s: a table without its commit: %.60s", path, table)
			}
		}
		said := basis.FindStringSubmatch(text)
		if said == nil {
			t.Errorf("%s does not say that its tables name their commits", path)
			continue
		}
		listed := strings.FieldsFunc(said[2], func(r rune) bool { return r == ',' || r == ' ' })
		want := changedCommits(t, strings.Join(tables, ""), listed)
		if *update {
			must.Do(t, os.WriteFile(path, []byte(strings.Replace(text, said[0], basisLine(said[1], want), 1)), 0o644))
			continue
		}
		if !slices.Equal(listed, want) {
			t.Errorf("%s: internal/ has changed since %q, and the page lists %q: run go test ./test/docs -run TestMeasured -update", path, want, listed)
		}
	}
}

func basisLine(sentence string, changed []string) string {
	if len(changed) == 0 {
		return sentence
	}
	return sentence + " internal/ has changed since " + strings.Join(changed, ", ") + "."
}

// changedCommits returns the commits in tables whose internal/ is not the present one, sorted. One that
// this clone does not have stays as it is listed; an update lists it.
func changedCommits(t *testing.T, tables string, listed []string) []string {
	t.Helper()
	var out []string
	for _, m := range commit.FindAllStringSubmatch(tables, -1) {
		changed, known := codeChanged(t, m[1])
		if !known {
			changed = *update || slices.Contains(listed, m[1])
		}
		if changed {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// codeChanged reports whether the code in internal/, without tests, differs from that of a commit.
func codeChanged(t *testing.T, commit string) (changed, known bool) {
	t.Helper()
	if exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		return false, false
	}
	err := exec.Command("git", "-C", root, "diff", "--quiet", commit, "--", ":(glob)internal/**/*.go", ":(exclude,glob)internal/**/*_test.go").Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return true, true
	}
	must.Do(t, err)
	return false, true
}

// block returns the table of results that a tool wrote under a name.
func block(t *testing.T, page, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs/results", page))
	must.Do(t, err)
	_, rest, found := strings.Cut(string(b), name+" -->\n")
	table, _, ended := strings.Cut(rest, "<!-- end")
	if !found || !ended {
		t.Fatalf("%s has no table %s", page, name)
	}
	return table
}

// TestQuotedNumbers: docs/accuracy.md has the numbers of the pages that it links to.
func TestQuotedNumbers(t *testing.T) {
	accuracy := pages(t)["docs/accuracy.md"]
	for _, q := range []struct{ page, table, runtimes, quote string }{
		{"faults.md", "make e2e-faults", `containerd [\d.]+`, `\| containerd[^|]* \| (\d+ of \d+) \|`},
		{"faults.md", "make e2e-faults", `CRI-O`, `\| CRI-O[^|]* \| (\d+ of \d+) \|`},
		{"faults.md", "make e2e-faults", `cri-dockerd`, `\| cri-dockerd[^|]* \| (\d+ of \d+) \|`},
		{"faults.md", "make e2e-faults", `simulated`, `\| stand-ins[^|]* \| (\d+ of \d+) \|`},
		{"kubelet.md", "make e2e-kubelet", `kubelet [\d.]+`, `\[(\d+ of \d+)\]\(results/kubelet\.md\) runs`},
		{"kubelet.md", "make e2e-cluster", `kubelet [\d.]+`, `\[(\d+ of \d+)\]\(results/kubelet\.md\) comparisons`},
	} {
		right, runs := 0, 0
		for _, m := range regexp.MustCompile(`(?m)^\| (?:`+q.runtimes+`) \| [^|]* \| (\d+) of (\d+) \|`).FindAllStringSubmatch(block(t, q.page, q.table), -1) {
			right += number(t, m[1])
			runs += number(t, m[2])
		}
		got := regexp.MustCompile(q.quote).FindStringSubmatch(accuracy)
		if want := fmt.Sprintf("%d of %d", right, runs); got == nil || got[1] != want {
			t.Errorf("docs/accuracy.md has %q of %s, %s has %s", got, q.runtimes, q.page, want)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+) MiB`).FindAllStringSubmatch(block(t, "performance.md", "bench:table"), -1) {
		resident, err := strconv.ParseFloat(m[3], 64)
		must.Do(t, err)
		row := regexp.MustCompile(fmt.Sprintf(`\n\| %s \| %s \| [\d.]+ \| %.0f of \d+ MiB \|`, m[1], m[2], resident))
		if !row.MatchString(accuracy) {
			t.Errorf("docs/accuracy.md has no row %s", row)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) plegd +[\d.]+ +([\d.]+) `).FindAllStringSubmatch(block(t, "performance.md", "bench:real"), -1) {
		quote := regexp.MustCompile(fmt.Sprintf(`\b%s(?: times a plain client\]\([^)]*\))? with %s\b`, m[2], m[1]))
		if !quote.MatchString(accuracy) {
			t.Errorf("docs/accuracy.md does not say %s", quote)
		}
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	must.Do(t, err)
	return n
}

// TestNumbersAreLinked: a section with a measured number links to the page that a tool wrote, or has its table.
func TestNumbersAreLinked(t *testing.T) {
	number := regexp.MustCompile(`\b\d+ of \d+\b|\b\d+\.\d+ s\b`)
	found := 0
	for page, text := range pages(t) {
		if strings.HasPrefix(page, "docs/reasons/") {
			continue // their limits come from the code
		}
		for section := range strings.SplitSeq(text, "\n#") {
			if !number.MatchString(section) {
				continue
			}
			found++
			if !strings.Contains(section, "results/") && !measured.MatchString(section) {
				title, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s: %s: %q without a link to docs/results", page, title, number.FindString(section))
			}
		}
	}
	check.Equal(t, found > 3, true, "sections with a measured number: %d", found)
}
