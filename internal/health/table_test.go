package health

import (
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/docs/reasons"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestPure keeps the package and the model of the kubelet pure: their allowed imports cannot read a clock, a file or a
// socket, and none but wchan, a table of names, is another package of plegd. (time is for the types; the test looks
// for Now and Since by name.)
func TestPure(t *testing.T) {
	for _, dir := range []string{".", "../kubelet"} {
		testPure(t, dir)
	}
}

func testPure(t *testing.T, dir string) {
	allowed := []string{"cmp", "fmt", "maps", "math", "path", "regexp", "slices", "strconv", "strings", "time", "github.com/plegd/plegd/docs/reasons", "github.com/plegd/plegd/internal/facts",
		"github.com/plegd/plegd/internal/wchan"}
	pkg, err := build.ImportDir(dir, 0)
	must.Do(t, err)
	for _, path := range pkg.Imports {
		model := dir == "." && path == "github.com/plegd/plegd/internal/kubelet"
		if !model && !slices.Contains(allowed, path) {
			t.Errorf("%s is imported: a verdict is made from facts and nothing else", path)
		}
	}
	for _, file := range pkg.GoFiles {
		b, err := os.ReadFile(filepath.Join(dir, file))
		must.Do(t, err)
		for _, call := range []string{"time.Now", "time.Since", "time.Until", "time.After(", "time.NewTimer"} {
			if strings.Contains(string(b), call) {
				t.Errorf("%s uses %s: the time is a parameter", file, call)
			}
		}
	}
}

// TestTable: a reason has one row and one page, with all headings (withPages panics
// otherwise), and the index lists the rows in their order.
func TestTable(t *testing.T) {
	index, err := os.ReadFile("../../docs/reasons/README.md")
	must.Do(t, err)
	ids, rows := map[string]bool{}, ""
	for _, r := range Reasons() {
		if ids[r.ID] || (r.Match == nil) == (r.Fallback == nil) || r.Layer == 0 || rankOf(r.Severity) < 0 {
			t.Errorf("%s: a row needs an id of its own, a layer, a severity and match", r.ID)
		}
		ids[r.ID] = true
		for _, l := range []string{r.Cause, r.NextLine} { // a label of a metric: of no node in particular
			if l == "" || len(l) > 128 || strings.ContainsAny(l, "{}`\"\\") || strings.HasSuffix(l, ".") {
				t.Errorf("%s: the front matter has %q", r.ID, l)
			}
		}
		rows += fmt.Sprintf("| [%s](%s.md) | %s | %s |\n", r.ID, r.ID, r.severities(), r.Cause)
		if strings.Contains(strings.ToLower(r.Evidence), "critical") != (r.CriticalWhile != nil) && r.ID != Unknown {
			t.Errorf("%s: the page must say when it is critical, where it is so at times: %s", r.ID, r.Evidence)
		}
		for _, text := range []string{r.Next, r.Steps[0]} {
			if strings.Contains(text, "`plegd status`") {
				t.Errorf("%s: %q leads to where it is read", r.ID, text)
			}
		}
		for _, text := range append(r.Steps, r.Next, r.Restart) {
			for _, bad := range []string{"pidof", "pkill", "killall"} { // on a node with two runtimes they match the wrong one
				if strings.Contains(text, bad) {
					t.Errorf("%s: %q finds a process by its name", r.ID, text)
				}
			}
			if _, known := genericWords.fill(text); !known {
				t.Errorf("%s: %q has a word that stands for nothing", r.ID, text)
			}
		}
	}
	check.Contains(t, string(index), rows, "docs/reasons/README.md does not list the rows as they")
	form := regexp.MustCompile(`(?s)^---\ncause: [^\n]{10,128}\nnext: [^\n]{10,128}\n---\n\n# .*\n## Meaning\n\n.+\n## Evidence\n\n.+\n## Next\n\n.+\n## Steps\n\n(\d\. [^\n]+\n)+\n## Restart\n\n[^#]+$`)
	pages, err := reasons.Pages.ReadDir(".")
	must.Do(t, err)
	for _, e := range pages {
		id := strings.TrimSuffix(e.Name(), ".md")
		if id != "README" && !ids[id] {
			t.Errorf("docs/reasons/%s belongs to no reason", e.Name())
		}
		if b, err := reasons.Pages.ReadFile(e.Name()); id != "README" && (err != nil || !form.Match(b)) {
			t.Errorf("docs/reasons/%s is not Meaning, Evidence, Next, numbered Steps and Restart (%v)", e.Name(), err)
		}
	}
}

var (
	command  = regexp.MustCompile("`[^`]+`")
	toFillIn = regexp.MustCompile(`\b(POD|CONTAINER|NODE|PID|HOLDER|CGROUP|MOUNTPOINT|DIRECTORY|UNIT|SOCKET|NAME|ID)\b|<[a-z]+>`)
)

// TestHarmlessSteps: a command has no word that a person must fill in, and none of those that have been found to do harm.
func TestHarmlessSteps(t *testing.T) {
	harmful := map[string]*regexp.Regexp{
		"has a word to be filled in":                           toFillIn,
		"sets a limit that may be below the present one":       regexp.MustCompile(`--nofile=\d`),
		"ends a process that does not handle it":               regexp.MustCompile(`USR1 [^{]|USR1 \{(pid|unit)`),
		"removes evidence":                                     regexp.MustCompile(`--vacuum|crictl\} rm `),
		"names a unit that k3s, RKE2 and microk8s do not have": regexp.MustCompile(`-u kubelet|systemctl [a-z]+ (-s ABRT )?(kubelet|containerd|docker)\b`),
		"restarts dockerd or another program by name":          regexp.MustCompile(`systemctl restart [^{]`),
	}
	for _, r := range Reasons() {
		for _, text := range append(r.Steps, r.Next, r.Restart) {
			for _, c := range command.FindAllString(text, -1) {
				for what, pattern := range harmful {
					if pattern.MatchString(c) {
						t.Errorf("%s: %s %s", r.ID, c, what)
					}
				}
			}
		}
	}
}
