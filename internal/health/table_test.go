package health

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestPure keeps the package pure: what it may import cannot read a clock of
// its own accord, a file or a socket, and none of its neighbours. (time is for
// the types; Now and Since are looked for by name.)
func TestPure(t *testing.T) {
	allowed := []string{"cmp", "fmt", "maps", "math", "slices", "strconv", "strings", "time", "github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, b, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s: a verdict is made from facts and nothing else", file, path)
			}
		}
		for _, call := range []string{"time.Now", "time.Since", "time.Until", "time.After(", "time.NewTimer"} {
			if strings.Contains(string(b), call) {
				t.Errorf("%s uses %s: the time is a parameter", file, call)
			}
		}
	}
}

func TestTable(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range Reasons() {
		if ids[r.ID] {
			t.Errorf("%s has two rows", r.ID)
		}
		ids[r.ID] = true
	}
	for _, r := range Reasons() {
		if r.Meaning == "" || r.Needs == "" || r.Next == "" || len(r.Steps) == 0 || r.match == nil {
			t.Errorf("%s: a row needs its meaning, evidence, next step, steps and match", r.ID)
		}
		if !slices.Contains([]Severity{SeverityCritical, SeverityWarning, SeverityInfo}, r.Severity) {
			t.Errorf("%s: severity %q", r.ID, r.Severity)
		}
		if !slices.Contains([]Help{HelpsYes, HelpsNo, HelpsMaybe}, r.Restart) {
			t.Errorf("%s: restart %q", r.ID, r.Restart)
		}
	}
}

// TestPagesAgree: docs/reasons is what the table says (`make generate`).
func TestPagesAgree(t *testing.T) {
	const dir = "../../docs/reasons"
	pages := Pages()
	for name, text := range pages {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if string(b) != text {
			t.Errorf("docs/reasons/%s is not what the table says: run make generate", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := pages[e.Name()]; !ok {
			t.Errorf("docs/reasons/%s belongs to no reason: run make generate", e.Name())
		}
	}
}
