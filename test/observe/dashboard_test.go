//go:build e2e

package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// checkDashboard asks Prometheus every query of the dashboards about the last
// two minutes of a node, and wants an answer to each.
func checkDashboard(t *testing.T, base, node string) {
	t.Helper()
	chosen := strings.NewReplacer("$cluster", ".*", "$job", ".*", "$node", node, "$__rate_interval", "30s", "$__range", "5m")
	asked := 0
	ask := func(title, expr string) {
		asked++
		if n, err := samples(base, chosen.Replace(expr)); err != nil || n == 0 {
			t.Errorf("%s: %d samples (%v) for %s", title, n, err, expr)
		}
	}
	for _, file := range []string{"plegd-overview.json", "plegd-node.json"} {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Annotations struct{ List []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(lab.Deployed(t, "grafana", file)), &dashboard); err != nil {
			t.Fatal(err)
		}
		for _, p := range dashboard.Panels {
			for _, target := range p.Targets {
				// A culprit is not known of every fault.
				if !strings.Contains(target.Expr, "pleg_culprit") {
					ask(p.Title, target.Expr)
				}
			}
		}
		for _, a := range dashboard.Annotations.List {
			ask("annotation", a.Expr)
		}
	}
	if asked < 30 {
		t.Errorf("the dashboards have only %d queries", asked)
	}
	lab.Report(t, "dashboards: %d queries, all answered by a real Prometheus", asked)
}

// samples counts what a query returns over the last two minutes.
func samples(base, expr string) (int, error) {
	now := time.Now()
	client := &http.Client{Timeout: 30 * time.Second}
	answer, err := client.Get(base + "/api/v1/query_range?" + url.Values{
		"query": {expr}, "step": {"5"},
		"start": {strconv.FormatInt(now.Add(-2*time.Minute).Unix(), 10)}, "end": {strconv.FormatInt(now.Unix(), 10)},
	}.Encode())
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", answer.Status, body)
	}
	var data struct {
		Data struct {
			Result []struct{ Values []any }
		}
	}
	if err := json.Unmarshal(body, &data); err != nil {
		return 0, err
	}
	n := 0
	for _, series := range data.Data.Result {
		n += len(series.Values)
	}
	return n, nil
}
