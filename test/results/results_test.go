package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTable writes two cases, reads them back, and puts their table into a page.
func TestTable(t *testing.T) {
	dir, took := t.TempDir(), 1.25
	date := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []*Case{
		{Place: 2, Name: "a list hangs", Want: "RuntimeListStall", Runtime: "CRI-O", Version: "1.37", Goal: 3, Commit: "c1", Date: date,
			Runs: []Run{{Seconds: &took}, {Wrong: "never\nnamed"}}},
		{Place: 1, Name: "1: SIGSTOP/frozen", Want: "RuntimeFrozen", Runtime: "containerd 1.6", Goal: 3, Commit: "c2", Date: date, Runs: []Run{{Seconds: &took}}},
	} {
		if err := Write(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("head\n<!-- begin results: make x -->\nold\n<!-- end results -->\ntail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WritePage(page, "make x", Table(all)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"head\n", "| CRI-O | 1.37 | 1 of 2 | 2026-11-01, c1 |\n",
		"| 1: SIGSTOP/frozen | RuntimeFrozen (3) |  | 1/1; 1.2, 1.2 |\n| a list hangs | RuntimeListStall (3) | 1/2; 1.2, 1.2, never |  |\n",
		"- CRI-O, a list hangs: never; named\n", "tail\n",
	}
	for _, part := range want {
		if !strings.Contains(string(text), part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old results are still there")
	}
}
