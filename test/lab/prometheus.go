//go:build e2e

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ScrapeInterval is how often the lab's Prometheus scrapes and evaluates.
const ScrapeInterval = time.Second

// Prometheus is a real Prometheus that scrapes one plegd every second.
type Prometheus struct {
	// Pid is its process id.
	Pid  int
	t    testing.TB
	base string
	http *http.Client
}

// Alert is an alert that is pending or firing.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
}

// NewPrometheus starts one with the files of its directory by their names, prometheus.yml
// among them, and more flags, and waits until it is ready.
func NewPrometheus(t testing.TB, address string, files map[string]string, flags ...string) *Prometheus {
	t.Helper()
	p := &Prometheus{t: t, base: "http://" + address, http: &http.Client{Timeout: 30 * time.Second}}
	t.Cleanup(p.http.CloseIdleConnections)
	p.awaitReady(StartProgram(t, "prometheus", p.argv(files, flags)...))
	return p
}

// NewPrometheusOn starts one on a node.
func NewPrometheusOn(n *Node, address string, files map[string]string, flags ...string) *Prometheus {
	n.t.Helper()
	p := &Prometheus{t: n.t, base: "http://" + address, http: n.Client(5 * time.Second)}
	log := filepath.Join(Dir(n.t), "prometheus.log")
	n.t.Cleanup(func() { KeepLog(n.t, log, "prometheus") })
	program := n.Start(log, p.argv(files, flags)...)
	p.awaitReady(program.Pid, program.End.Done)
	return p
}

// NewPrometheusIn starts one in the network of a process, which client reaches, and waits for its first scrape.
func NewPrometheusIn(t testing.TB, pid int, client *http.Client, files map[string]string) *Prometheus {
	t.Helper()
	p := &Prometheus{t: t, base: "http://127.0.0.1:9090", http: client}
	argv := append([]string{"nsenter", fmt.Sprintf("--target=%d", pid), "--net", "--"}, p.argv(files, nil)...)
	p.awaitReady(StartProgram(t, "prometheus", argv...))
	p.awaitScrape()
	return p
}

// URL is where it serves.
func (p *Prometheus) URL() string { return p.base }

// AgentMode is the flag of a Prometheus that scrapes and sends, and stores nothing.
const AgentMode = "--enable-feature=agent"

// argv is the command line of one with these files.
func (p *Prometheus) argv(files map[string]string, flags []string) []string {
	p.t.Helper()
	RequirePrograms(p.t, "prometheus")
	dir := Dir(p.t)
	for name, text := range files {
		Must(p.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	switch isPath := func(flag string) bool { return strings.HasPrefix(flag, "--storage.tsdb.path=") }; {
	case slices.Contains(flags, AgentMode):
		flags = append(flags, "--storage.agent.path="+filepath.Join(dir, "data"))
	case !slices.ContainsFunc(flags, isPath):
		flags = append(flags, "--storage.tsdb.path="+filepath.Join(dir, "data"))
	}
	return append([]string{
		LookPath(p.t, "prometheus"), "--config.file=" + filepath.Join(dir, "prometheus.yml"),
		"--web.listen-address=" + strings.TrimPrefix(p.base, "http://"), "--log.level=warn",
	}, flags...)
}

// awaitReady waits until Prometheus is ready; ended is closed when it has ended.
func (p *Prometheus) awaitReady(pid int, ended <-chan struct{}) {
	p.t.Helper()
	p.Pid = pid
	Eventually(p.t, 30*time.Second, "prometheus is ready", func() error {
		if IsClosed(ended) {
			p.t.Fatal("prometheus has ended")
		}
		code, body, err := Get(p.http, p.base+"/-/ready")
		if err == nil && code != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
}

// Query returns the labels of the series that an instant query selects, with their values under the empty name.
func (p *Prometheus) Query(query string) ([]map[string]string, error) {
	var data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		} `json:"result"`
	}
	if err := p.query("/api/v1/query", url.Values{"query": {query}}, &data); err != nil {
		return nil, err
	}
	var out []map[string]string
	for _, series := range data.Result {
		labels := map[string]string{"": fmt.Sprint(series.Value[1])}
		maps.Copy(labels, series.Metric)
		out = append(out, labels)
	}
	return out, nil
}

// Value returns the value of the one series that an instant query selects.
func (p *Prometheus) Value(query string) (float64, error) {
	series, err := p.Query(query)
	if err == nil && len(series) != 1 {
		err = fmt.Errorf("%d results", len(series))
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(series[0][""], 64)
}

// awaitScrape waits until the target has been scraped: a new Prometheus takes some
// seconds until it looks at its targets.
func (p *Prometheus) awaitScrape() {
	p.t.Helper()
	Eventually(p.t, 30*time.Second, "prometheus has scraped", func() error {
		scraped, err := p.Query("up == 1")
		if err == nil && len(scraped) == 0 {
			err = errors.New("it has not")
		}
		return err
	})
}

// Alerts returns the alerts that are pending or firing.
func (p *Prometheus) Alerts() ([]Alert, error) {
	var data struct {
		Alerts []Alert `json:"alerts"`
	}
	err := p.query("/api/v1/alerts", nil, &data)
	return data.Alerts, err
}

// Range returns the samples of all series that a query selects, one per scrape
// interval, from a moment until now: times and values.
func (p *Prometheus) Range(query string, from time.Time) (samples [][2]any, err error) {
	var data struct {
		Result []struct {
			Values [][2]any `json:"values"`
		} `json:"result"`
	}
	err = p.query("/api/v1/query_range", url.Values{
		"query": {query},
		"start": {unixSeconds(from)},
		"end":   {unixSeconds(time.Now())},
		"step":  {strconv.FormatFloat(ScrapeInterval.Seconds(), 'f', -1, 64)},
	}, &data)
	for _, series := range data.Result {
		samples = append(samples, series.Values...)
	}
	return samples, err
}

func (p *Prometheus) query(path string, values url.Values, data any) error {
	code, body, err := Get(p.http, p.base+path+"?"+values.Encode())
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("%s: %d %s", path, code, strings.TrimSpace(body))
	}
	answer := struct {
		Status string `json:"status"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(body)
	}
	return nil
}

func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}
