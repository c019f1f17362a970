//go:build e2e

package observe

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// runtime is a fake runtime of its own process.
type runtime struct {
	t      *testing.T
	socket string
}

func newRuntime(t *testing.T, args ...string) *runtime {
	t.Helper()
	r := &runtime{t: t, socket: filepath.Join(lab.Dir(t), "r.sock")}
	start(t, "simulate", lab.Binary(t), append([]string{"simulate", "--socket", r.socket}, args...)...)
	lab.Eventually(t, 20*time.Second, "the fake runtime listens", func() error { _, err := os.Stat(r.socket); return err })
	return r
}

// fail puts failpoints in place of those before.
func (r *runtime) fail(spec string) {
	r.t.Helper()
	lab.Command{Args: []string{"simulate", "failpoints", "--socket", r.socket, spec}}.Run(r.t, 20*time.Second)
}

// start starts a program that is killed when the test ends.
func start(t *testing.T, name, program string, args ...string) {
	t.Helper()
	path := filepath.Join(lab.Dir(t), name+".log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.KeepLog(t, path, name) })
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// ready waits until a server's /-/ready is good.
func ready(t *testing.T, name, base string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	lab.Eventually(t, time.Minute, name+" is ready", func() error {
		answer, err := client.Get(base + "/-/ready")
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// prometheus starts one with this configuration and the rules beside it, and
// returns where it serves.
func prometheus(t *testing.T, config string, files map[string]string) string {
	t.Helper()
	return prometheusAt(t, freeAddress(t), config, files)
}

// agentMode makes a Prometheus that scrapes and sends, and stores nothing.
const agentMode = "--enable-feature=agent"

func prometheusAt(t *testing.T, address, config string, files map[string]string, flags ...string) string {
	t.Helper()
	lab.RequirePrograms(t, "prometheus")
	dir := lab.Dir(t)
	write(t, dir, "prometheus.yml", config)
	for name, text := range files {
		write(t, dir, name, text)
	}
	data := "--storage.tsdb.path="
	if slices.Contains(flags, agentMode) {
		data = "--storage.agent.path="
	}
	start(t, "prometheus", "prometheus", append(flags, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		data+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")...)
	base := "http://" + address
	ready(t, "Prometheus", base)
	return base
}

// targets is a scrape job with a target for each node.
func targets(nodes map[string]string) string {
	s := "scrape_configs:\n  - job_name: plegd\n    static_configs:\n"
	for name, address := range nodes {
		s += fmt.Sprintf("      - targets: [%q]\n        labels: {node: %q, cluster: test}\n", address, name)
	}
	return s
}
