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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ScrapeInterval is how often the lab's Prometheus scrapes and evaluates.
const ScrapeInterval = time.Second

// Prometheus is a real Prometheus that scrapes one plegd every second.
type Prometheus struct {
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

// Sample is one sample of a series.
type Sample struct {
	At    time.Time
	Value float64
}

// NewPrometheusOn starts one on a node, with the files of its directory by their
// names, prometheus.yml among them, and more flags, and waits until it is ready.
func NewPrometheusOn(n *Node, address string, files map[string]string, flags ...string) *Prometheus {
	n.t.Helper()
	RequirePrograms(n.t, "prometheus")
	dir := Dir(n.t)
	for name, text := range files {
		must(n.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	log := filepath.Join(dir, "prometheus.log")
	n.t.Cleanup(func() { KeepLog(n.t, log, "prometheus") })
	p := &Prometheus{t: n.t, base: "http://" + address, http: n.Client(5 * time.Second)}
	argv := append([]string{LookPath(n.t, "prometheus")}, prometheusFlags(dir, address)...)
	process := n.Start(log, append(argv, flags...)...)
	p.awaitReady(process.end.done)
	return p
}

func prometheusFlags(dir, address string) []string {
	return []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + address,
		"--log.level=warn",
	}
}

// run starts Prometheus with the configuration in dir, behind a prefix of its
// command line, and waits until it is ready.
func (p *Prometheus) run(dir, address string, prefix ...string) {
	t := p.t
	t.Helper()
	path := filepath.Join(dir, "prometheus.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { KeepLog(t, path, "prometheus") })
	t.Cleanup(func() { closeQuietly(log) })
	argv := append(prefix, LookPath(t, "prometheus"))
	argv = append(argv, prometheusFlags(dir, address)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start prometheus: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		p.http.CloseIdleConnections()
	})
	p.awaitReady(done)
	p.awaitScrape(t)
}

// awaitReady waits until Prometheus is ready; ended is closed when it has ended.
func (p *Prometheus) awaitReady(ended <-chan struct{}) {
	p.t.Helper()
	Eventually(p.t, 30*time.Second, "prometheus is ready", func() error {
		if isClosed(ended) {
			p.t.Fatal("prometheus has ended")
		}
		code, body, err := get(p.http, p.base+"/-/ready")
		if err == nil && code != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
}

// Query returns the labels of the series that an instant query selects, with their
// values under the empty name.
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

// awaitScrape waits until the target has been scraped: a new Prometheus takes
// some seconds until it looks at its targets.
func (p *Prometheus) awaitScrape(t testing.TB) {
	t.Helper()
	Eventually(t, 30*time.Second, "prometheus has scraped", func() error {
		scraped, err := p.Range("up == 1", time.Now().Add(-10*time.Second))
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

// Firing reports whether an alert of this name fires.
func (p *Prometheus) Firing(name string) (bool, error) {
	alerts, err := p.Alerts()
	for _, a := range alerts {
		if a.Labels["alertname"] == name && a.State == "firing" {
			return true, err
		}
	}
	return false, err
}

// Range returns the samples of all series that a query selects, one per scrape
// interval, from a moment until now.
func (p *Prometheus) Range(query string, from time.Time) ([]Sample, error) {
	var data struct {
		Result []struct {
			Values [][2]any `json:"values"`
		} `json:"result"`
	}
	err := p.query("/api/v1/query_range", url.Values{
		"query": {query},
		"start": {unixSeconds(from)},
		"end":   {unixSeconds(time.Now())},
		"step":  {strconv.FormatFloat(ScrapeInterval.Seconds(), 'f', -1, 64)},
	}, &data)
	if err != nil {
		return nil, err
	}
	var samples []Sample
	for _, series := range data.Result {
		for _, v := range series.Values {
			at, ok1 := v[0].(float64)
			text, ok2 := v[1].(string)
			if !ok1 || !ok2 {
				return nil, fmt.Errorf("a sample of %s is %v", query, v)
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			samples = append(samples, Sample{At: time.UnixMilli(int64(at * 1000)), Value: value})
		}
	}
	return samples, nil
}

func (p *Prometheus) query(path string, values url.Values, data any) error {
	code, body, err := get(p.http, p.base+path+"?"+values.Encode())
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
