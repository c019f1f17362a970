//go:build e2e

package systemd

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// HTTP returns a client whose connections are made inside systemd's network
// namespace: 127.0.0.1 is the one that its services listen on.
func (s *Systemd) HTTP() *http.Client {
	transport := lab.TransportIn(s.pid)
	transport.DisableKeepAlives = true
	return &http.Client{Timeout: 5 * time.Second, Transport: transport}
}

// Get fetches a path of plegd, at its usual port.
func (s *Systemd) Get(path string) (code int, body string, err error) {
	return lab.Get(s.HTTP(), "http://127.0.0.1:20290"+path)
}

// NewPrometheus starts a real Prometheus in systemd's network namespace, and in that only: it lives on when systemd
// shuts down. It scrapes plegd at its usual port, and has the project's own rules.
func (s *Systemd) NewPrometheus(ruleFiles ...string) *lab.Prometheus {
	s.t.Helper()
	files := map[string]string{}
	for _, file := range ruleFiles {
		b, err := os.ReadFile(file)
		lab.Must(s.t, err)
		files[filepath.Base(file)] = string(b)
	}
	files["prometheus.yml"] = fmt.Sprintf(`global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}
rule_files: ["*.rules.yml", "*.recording.yml"]
scrape_configs: [{job_name: plegd, static_configs: [{targets: ["127.0.0.1:20290"]}]}]
`, lab.ScrapeInterval)
	return lab.NewPrometheusIn(s.t, s.pid, s.HTTP(), files)
}
