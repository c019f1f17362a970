//go:build e2e

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// HTTP returns a client whose connections are made inside systemd's network
// namespace: 127.0.0.1 is the one that its services listen on.
func (s *Systemd) HTTP() *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		inner := inNetwork(s.pid, func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, inner
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// Get fetches a path of plegd, at its usual port.
func (s *Systemd) Get(path string) (code int, body string, err error) {
	return get(s.HTTP(), "http://127.0.0.1:20290"+path)
}

// NewPrometheus starts a real Prometheus in systemd's network namespace, and in
// that only: it lives on when systemd shuts down. It scrapes plegd at its usual
// port, and has the project's own rules.
func (s *Systemd) NewPrometheus(ruleFiles ...string) *Prometheus {
	s.t.Helper()
	RequirePrograms(s.t, "prometheus")
	dir := Dir(s.t)
	for i, file := range ruleFiles {
		path, err := filepath.Abs(file)
		if err != nil {
			s.t.Fatal(err)
		}
		ruleFiles[i] = path
	}
	config := fmt.Sprintf(`global:
  scrape_interval: %[1]s
  evaluation_interval: %[1]s
rule_files: [%[2]s]
scrape_configs:
  - job_name: plegd
    static_configs:
      - targets: ["127.0.0.1:20290"]
`, ScrapeInterval, strings.Join(ruleFiles, ", "))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		s.t.Fatal(err)
	}
	p := &Prometheus{t: s.t, base: "http://127.0.0.1:9090", http: s.HTTP()}
	p.run(dir, "127.0.0.1:9090", "nsenter", fmt.Sprintf("--target=%d", s.pid), "--net", "--")
	return p
}
