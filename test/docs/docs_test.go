// Package docs checks the pages that a user reads: links, make targets, and commands.
// It runs every plegd command of their code blocks beside a simulated runtime. It needs
// no root and no network.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

const root = "../.."

// pages returns the user's pages: path from the root to text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/reasons/*.md", "deploy/*/README.md", "deploy/helm/plegd/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no page matches %s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			must.Do(t, err)
			out[strings.TrimPrefix(path, root+"/")] = string(text)
		}
	}
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	target  = regexp.MustCompile("(?:`|^    |&& )make ([a-z0-9][a-z0-9-]*)")
)

// anchor returns the fragment that GitHub gives a heading.
func anchor(title string) string {
	title = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(title, " ", "-")
}

func hasAnchor(text, fragment string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		if anchor(m[1]) == fragment {
			return true
		}
	}
	return false
}

// TestLinks follows the relative links of every page.
func TestLinks(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, fragment, _ := strings.Cut(m[1], "#")
			to := filepath.Join(root, filepath.Dir(page), path)
			if path == "" {
				to = filepath.Join(root, page)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if fragment == "" {
				continue
			}
			if there, err := os.ReadFile(to); err != nil || !hasAnchor(string(there), fragment) {
				t.Errorf("%s: %s has no heading for #%s", page, to, fragment)
			}
		}
	}
}

// questions are those of newcomers: the answer is one link away from README.
var questions = []struct{ question, link, answer string }{
	{"how is a node silenced?", "docs/day-two.md#maintenance-and-silence", "amtool silence add node="},
	{"how is the alert tested?", "docs/day-two.md#test-the-page", "plegd drill "},
	{"how is it rolled back?", "docs/day-two.md#upgrade-and-roll-back", "helm rollback "},
	{"how does kubeadm install it?", "docs/platforms.md", "| kubeadm | `--set kubeletMetrics.servingCertificate="},
	{"where is an image?", "docs/platforms.md", "Publish an image first"},
	{"which ports are open?", "docs/platforms.md", "Prometheus scrapes port 20290"},
	{"which token and role does it have?", "docs/install.md#kubernetes", "`nodes/metrics`"},
	{"which alerts of kube-prometheus report the same?", "docs/install.md#prometheus-and-alertmanager", "`KubeNodeNotReady`"},
	{"what does it cost?", "docs/accuracy.md#costs", "plegd / plain client"},
	{"does a restart of the runtime help?", "docs/troubleshooting.md#3-before-you-restart-anything", "A restart destroys the evidence"},
	{"how is it installed, and does it work?", "docs/install.md", "`Status:` line of the last command is the verdict"},
	{"what does this reason mean?", "docs/reasons/README.md", "[RuntimeListStall](RuntimeListStall.md)"},
	{"how is it upgraded?", "docs/day-two.md#upgrade-and-roll-back", "helm upgrade plegd "},
	{"how is it uninstalled?", "docs/day-two.md#uninstall", "apt purge plegd"},
	{"what leaves the node?", "docs/day-two.md#what-leaves-the-node", "No name of a pod"},
	{"what if plegd itself hangs?", "docs/day-two.md#when-plegd-itself-hangs", "`WatchdogSec`"},
}

// TestQuestions follows the link of each question from README to its section.
func TestQuestions(t *testing.T) {
	texts := pages(t)
	for _, q := range questions {
		check.Contains(t, texts["README.md"], "]("+q.link+")", "%s", q.question)
		page, fragment, _ := strings.Cut(q.link, "#")
		section := texts[page]
		for _, m := range heading.FindAllStringSubmatchIndex(section, -1) {
			if fragment != "" && anchor(section[m[2]:m[3]]) == fragment {
				section, _, _ = strings.Cut(section[m[3]:], "\n## ")
				break
			}
		}
		check.Contains(t, section, q.answer, "%s: %s", q.question, q.link)
	}
}

// TestTargets finds the make targets of every page and workflow in the Makefile, and the packages of the
// Makefile in the repository.
func TestTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must.Do(t, err)
	for _, m := range regexp.MustCompile(`\s\./((?:internal|test|deploy|cmd|bench)[\w/-]*)`).FindAllStringSubmatch(string(makefile), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("Makefile: there is no package %s", m[1])
		}
	}
	texts := pages(t)
	workflows, _ := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	calls := 0
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		must.Do(t, err)
		for _, m := range regexp.MustCompile(`(?m)^[^#\n]*(?:\bmake |\btarget: \[)([a-z0-9, -]+)`).FindAllStringSubmatch(string(text), -1) {
			for name := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r == ' ' || r == ',' }) {
				calls++
				texts[path] += "\n    make " + name
			}
		}
	}
	if calls < 15 {
		t.Errorf("the workflows call only %d targets", calls)
	}
	for page, text := range texts {
		for _, line := range strings.Split(text, "\n") {
			for _, m := range target.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s: the Makefile has no target %s", page, m[1])
				}
			}
		}
	}
}

// TestNames finds the tests that a page, the Makefile or CI names.
func TestNames(t *testing.T) {
	out, err := exec.Command("git", "-C", root, "grep", "-hoE", "^func Test[A-Za-z]+", "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: no git checkout: %v", err)
	}
	texts := pages(t)
	for _, file := range []string{"Makefile", ".ci/run"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		must.Do(t, err)
		texts[file] = string(b)
	}
	for page, text := range texts {
		for _, name := range regexp.MustCompile(`\bTest[A-Z][A-Za-z]+`).FindAllString(text, -1) {
			check.Contains(t, string(out)+"\n", "func "+name+"\n", "%s: there is no %s", page, name)
		}
	}
}

var inline = regexp.MustCompile("`plegd ([a-z]+)([^`]*)`")

// TestFlags finds every command and flag that a page names in that command's help, and every command
// in docs/operating.md.
func TestFlags(t *testing.T) {
	binary := build(t)
	help := map[string]string{}
	for page, text := range pages(t) {
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			if _, ok := help[m[1]]; !ok {
				out, err := exec.Command(binary, m[1], "--help").CombinedOutput()
				if err != nil {
					t.Errorf("%s: plegd %s: %v", page, m[1], err)
				}
				help[m[1]] = string(out)
			}
			for _, flag := range regexp.MustCompile(`--[a-z][a-z.-]*`).FindAllString(m[2], -1) {
				if !strings.Contains(help[m[1]], flag) {
					t.Errorf("%s: plegd %s has no flag %s", page, m[1], flag)
				}
			}
		}
	}
	out, err := exec.Command(binary, "--help").Output()
	must.Do(t, err)
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) {2,}`).FindAllStringSubmatch(string(out), -1)
	if len(commands) < 10 {
		t.Errorf("the help has %d commands:\n%s", len(commands), out)
	}
	for _, c := range commands {
		check.Contains(t, pages(t)["docs/operating.md"], "`plegd "+c[1], "docs/operating.md")
	}
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plegd")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/plegd/plegd/cmd/plegd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}
