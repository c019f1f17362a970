package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkDashboard says what is wrong with a dashboard's JSON.
func checkDashboard(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var d dashboard
	if err := dec.Decode(&d); err != nil {
		return err
	}
	if dec.More() {
		return fmt.Errorf("something follows the dashboard")
	}
	metrics, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		return err
	}
	known := map[string]bool{"datasource": true, "__rate_interval": true, "__range": true}
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
				if other := taken[[2]int{x, y}]; other != "" || x >= width {
					return fmt.Errorf("%s lies over %q or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			return fmt.Errorf("%s asks for nothing", p.Title)
		}
		for _, t := range p.Targets {
			for _, name := range regexp.MustCompile(`\bpleg_[a-z_]+`).FindAllString(t.Expr, -1) {
				if !strings.Contains(string(metrics), "`"+strings.TrimSuffix(name, "_bucket")+"`") {
					return fmt.Errorf("%s: there is no metric %s", p.Title, name)
				}
			}
			for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(t.Expr, -1) {
				if !known[m[1]] {
					return fmt.Errorf("%s: there is no variable %s", p.Title, m[1])
				}
			}
		}
	}
	return nil
}

func stored(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("plegd.json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDashboard(t *testing.T) {
	want, err := encode(newDashboard())
	if err != nil {
		t.Fatal(err)
	}
	got := stored(t)
	if !bytes.Equal(got, want) {
		t.Error("plegd.json is not what the code makes: run make generate")
	}
	if err := checkDashboard(got); err != nil {
		t.Error(err)
	}
}

// TestMutations spoils the dashboard and wants that to be noticed.
func TestMutations(t *testing.T) {
	for name, m := range map[string][2]string{
		"a field that Grafana does not have": {`"refresh": "15s"`, `"refersh": "15s"`},
		"a metric that plegd does not have":  {"pleg_relist_inflight_seconds", "pleg_relist_in_flight_seconds"},
		"a variable that nobody sets":        {`node=\"$node\"`, `node=\"$instance\"`},
		"one panel over another":             {`"x": 12,`, `"x": 11,`},
		"a type that does not fit":           {`"schemaVersion": 39`, `"schemaVersion": "39"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := stored(t)
			spoilt := bytes.Replace(got, []byte(m[0]), []byte(m[1]), 1)
			if bytes.Equal(spoilt, got) {
				t.Fatalf("there is no %s to spoil", m[0])
			}
			if err := checkDashboard(spoilt); err == nil {
				t.Errorf("nothing notices %s", m[1])
			}
		})
	}
}
