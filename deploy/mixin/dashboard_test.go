package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dashboard is what the tests read of a dashboard (Grafana's schema 39).
type dashboard struct {
	UID, Title  string
	Templating  struct{ List []struct{ Name string } }
	Annotations struct{ List []target }
	Panels      []struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []target
		Interval    string
	}
}

type target struct {
	Name, Expr string
	Instant    bool
}

// checkDashboard returns an error if a dashboard has panels that overlap, or queries of
// unknown series and variables.
func checkDashboard(text []byte, recorded map[string]bool) error {
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	metrics, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		return err
	}
	known := map[string]bool{"datasource": true, "__rate_interval": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.Title == "" || ids[p.ID] {
			return fmt.Errorf("panel %d %q: no title, or not the only one of its number", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					return fmt.Errorf("%s lies over %q or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			return fmt.Errorf("%s has no query", p.Title)
		}
		for _, t := range p.Targets {
			if err := checkExpr(d.UID, t.Expr, string(metrics), known, recorded); err != nil {
				return fmt.Errorf("%s: %w", p.Title, err)
			}
		}
	}
	for _, a := range d.Annotations.List {
		if err := checkExpr(d.UID, a.Expr, string(metrics), known, recorded); err != nil {
			return fmt.Errorf("annotation %s: %w", a.Name, err)
		}
	}
	return nil
}

func checkExpr(dashboard, expr, metrics string, variables, recorded map[string]bool) error {
	if err := checkNames(expr, metrics, recorded); err != nil {
		return err
	}
	if dashboard != "plegd-node" {
		if raw := regexp.MustCompile(`(?:^|[^:\w])((?:pleg_|plegd_|kubelet_|up\b)\w*)`).FindString(expr); raw != "" {
			return fmt.Errorf("%s is there for every node: read a recorded series", raw)
		}
	} else if !strings.Contains(expr, `node="$node"`) {
		return fmt.Errorf("%s reads more than one node", expr)
	}
	for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
		if !variables[m[1]] {
			return fmt.Errorf("there is no variable %s", m[1])
		}
	}
	return nil
}

// checkNames returns an error if an expression reads a series that neither plegd nor a rule
// makes.
func checkNames(expr, metrics string, recorded map[string]bool) error {
	for _, name := range regexp.MustCompile(`\b(?:[a-z]+:)?plegd?_[a-z_]+(?::[a-z0-9_]+)?`).FindAllString(expr, -1) {
		if !recorded[name] && !strings.Contains(metrics, "`"+regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")+"`") {
			return fmt.Errorf("there is no %s", name)
		}
	}
	return nil
}

// recordedNames returns what the rules record.
func recordedNames(t *testing.T, config string) map[string]bool {
	t.Helper()
	m, err := evaluate(config)
	must(t, err)
	out := map[string]bool{}
	series := map[string]bool{}
	for _, g := range append(m.Alerts.Groups, m.Rules.Groups...) {
		for _, r := range g.Rules {
			if r.Record != "" {
				one := fmt.Sprint(r.Record, r.Labels)
				if series[one] {
					t.Errorf("%s is recorded twice", one)
				}
				series[one] = true
				out[r.Record] = true
			}
		}
	}
	return out
}

func stored(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "grafana", name))
	must(t, err)
	return b
}

func TestDashboards(t *testing.T) {
	recorded := recordedNames(t, "")
	for _, name := range []string{"plegd-overview.json", "plegd-fleet.json", "plegd-node.json"} {
		if err := checkDashboard(stored(t, name), recorded); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
