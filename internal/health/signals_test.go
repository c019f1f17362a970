package health

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSignals: every signal has a name of its own and says what it means, holds
// for no facts at all without a panic, and keeps since when it holds.
func TestSignals(t *testing.T) {
	names := map[string]bool{}
	for s, row := range signals {
		if row.name == "" || row.means == "" || row.holds == nil || names[row.name] {
			t.Errorf("signal %d: %+v", s, row)
		}
		names[row.name] = true
	}
	now := time.Now()
	first := Judge(&Facts{Relist: Relist{Failures: 1, Last: &RelistResult{Err: &CallError{Code: "Unavailable"}}}}, now, nil)
	if s := first.signal("relist_trouble"); s == nil || !s.Since.Equal(now) {
		t.Fatalf("a relist that failed: %+v", first.Signals)
	}
	second := Judge(&Facts{Relist: Relist{Failures: 2, Last: &RelistResult{Err: &CallError{Code: "Unavailable"}}}}, now.Add(time.Second), first)
	if s := second.signal("relist_trouble"); s == nil || !s.Since.Equal(now) {
		t.Errorf("a second later: %+v", second.Signals)
	}
	if s := second.signal("status_trouble"); s != nil {
		t.Errorf("Status has not been called: %+v", s)
	}
}

// TestConditionsAreShort: a condition that mixes && and || has at most three
// terms. What needs more gets a name.
func TestConditionsAreShort(t *testing.T) {
	const most = 3
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(*ast.BinaryExpr)
			if !ok || e.Op != token.LAND && e.Op != token.LOR {
				return true
			}
			operators := map[token.Token]bool{}
			if terms := countTerms(e, operators); terms > most && len(operators) > 1 {
				t.Errorf("%s: %d terms of && and ||: give a part of it a name", fset.Position(e.Pos()), terms)
			}
			return false
		})
	}
}

// countTerms counts the terms of a condition and notes its operators.
func countTerms(e ast.Expr, operators map[token.Token]bool) int {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return countTerms(x.X, operators)
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			return countTerms(x.X, operators)
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			operators[x.Op] = true
			return countTerms(x.X, operators) + countTerms(x.Y, operators)
		}
	}
	return 1
}
