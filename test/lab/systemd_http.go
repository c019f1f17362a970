//go:build e2e

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HTTP returns a client whose connections are made inside systemd's network
// namespace: 127.0.0.1 is the one that its services listen on.
func (s *Systemd) HTTP() *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialInside(ctx, s.pid, network, address)
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// dialInside moves its thread into the network namespace, and back: a thread
// that ended would take with it the processes that it has started, since they
// are to die with their parent.
func dialInside(ctx context.Context, pid int, network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	back := func() error { return nil }
	defer func() {
		if back() == nil {
			runtime.UnlockOSThread()
		}
	}()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer closeQuietly(here)
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer closeQuietly(there)
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the network namespace of %d: %w", pid, err)
	}
	// Now, while the file is open: what is put off last is done first.
	defer func() {
		err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET)
		back = func() error { return err }
	}()
	var d net.Dialer
	return d.DialContext(ctx, network, address)
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
