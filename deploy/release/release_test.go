package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestSBOM describes a binary that is built here, and compares with what Go says of it.
func TestSBOM(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "linux-amd64")
	path := filepath.Join(dir, "plegd")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/plegd/plegd/cmd/plegd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out := filepath.Join(t.TempDir(), "sbom.json")
	must.Do(t, run(out, "0.1.0", "2026-11-22T00:00:00Z", []string{path}))
	first, err := os.ReadFile(out)
	must.Do(t, err)
	must.Do(t, run(out, "0.1.0", "2026-11-22T00:00:00Z", []string{path}))
	if second, err := os.ReadFile(out); err != nil || string(second) != string(first) {
		t.Errorf("the same binary gives two documents (%v)", err)
	}
	var doc document
	must.Do(t, json.Unmarshal(first, &doc))
	ids := map[string]bool{doc.ID: true}
	var got []string
	for _, p := range doc.Packages {
		if ids[p.ID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
			t.Errorf("the identifier %q is there twice, or is none", p.ID)
		}
		ids[p.ID] = true
		got = append(got, p.Name+" "+p.Version)
	}
	for _, r := range doc.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("%v speaks of packages that are not there", r)
		}
	}
	text, err := exec.Command("go", "version", "-m", path).Output()
	must.Do(t, err)
	modules := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(text), -1)
	if len(modules) < 10 || len(doc.Packages) != len(modules)+2 {
		t.Errorf("%d packages of %d modules, want plegd, Go and the modules", len(doc.Packages), len(modules))
	}
	for _, m := range modules {
		if !slices.Contains(got, m[1]+" "+m[2]) {
			t.Errorf("%s %s is missing", m[1], m[2])
		}
	}
	if err := run(out, "0.1.0", "2026-11-22T00:00:00Z", []string{"main.go"}); err == nil {
		t.Error("a file that is no Go binary is described")
	}
}

// TestWorkflows: an action is named by the commit of its release, no step is given the token by
// checkout, and no container is privileged.
func TestWorkflows(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	must.Do(t, err)
	uses := regexp.MustCompile(`(?m)^\s+(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, path := range workflows {
		b, err := os.ReadFile(path)
		must.Do(t, err)
		text := string(b)
		for _, m := range uses.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s: want OWNER/NAME@COMMIT # VERSION", path, m[1])
			}
		}
		check.Equal(t, strings.Count(text, "actions/checkout@"), strings.Count(text, "persist-credentials: false"), "%s: checkout leaves the token in the work tree", path)
		if strings.Contains(text, "--privileged") {
			t.Errorf("%s has a privileged container", path)
		}
	}
	if len(workflows) == 0 {
		t.Error("there are no workflows")
	}
}

// TestPackageTools: `make packages` looks for its tools before it compiles, and makes the packages that it can.
func TestPackageTools(t *testing.T) {
	for _, tt := range []struct {
		tools, wanted string
		code          int
		output        string
	}{
		{"dpkg-deb", "", 0, "no .rpm: there is no rpmbuild here"},
		{"rpmbuild", "", 0, "no .deb: there is no dpkg-deb here"},
		{"dpkg-deb rpmbuild", "", 0, ""},
		{"dpkg-deb", "deb rpm", 1, "there is no rpmbuild here for the .rpm"},
		{"", "", 1, "neither dpkg-deb nor rpmbuild is here"},
	} {
		path := t.TempDir()
		bash, err := exec.LookPath("bash")
		must.Do(t, err)
		dirname, err := exec.LookPath("dirname")
		must.Do(t, err)
		must.Do(t, os.Symlink(dirname, filepath.Join(path, "dirname")))
		for tool := range strings.FieldsSeq(tt.tools) {
			must.Do(t, os.WriteFile(filepath.Join(path, tool), []byte("#!/bin/sh\n"), 0o755))
		}
		cmd := exec.Command(bash, "../packages/build.sh", "--tools")
		cmd.Env = []string{"PATH=" + path, "PACKAGES=" + tt.wanted}
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.output) || tt.output == "" && len(out) > 0 {
			t.Errorf("with %q, for %q: exit %d, want %d with %q\n%s", tt.tools, tt.wanted, cmd.ProcessState.ExitCode(), tt.code, tt.output, out)
		}
	}
}
