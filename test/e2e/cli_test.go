//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// commandLimit is how long check and status may take in these tests.
const commandLimit = 15 * time.Second

func command(t *testing.T, args ...string) lab.Output {
	t.Helper()
	return lab.Command{Args: args}.Run(t, commandLimit)
}

// commands runs check and status beside the daemon, as text and as JSON.
func (s *subject) commands(t *testing.T, state, reason string, code int) {
	t.Helper()
	for _, name := range []string{"check", "status"} {
		text := command(t, name, "--control-socket="+s.plegd.ControlSocket)
		if out := strings.ToLower(text.Stdout); text.Code != code || !strings.Contains(out, state) || !strings.Contains(out, strings.ToLower(reason)) {
			t.Errorf("plegd %s exits with %d, want %d, %s and %s\n%s%s", name, text.Code, code, state, reason, text.Stdout, text.Stderr)
		}
		verdictIs(t, state, reason, code, name, "-o", "json", "--control-socket="+s.plegd.ControlSocket)
	}
}

// verdictIs checks the JSON and the exit code of a command.
func verdictIs(t *testing.T, state, reason string, code int, args ...string) {
	t.Helper()
	out := command(t, args...)
	var got lab.Status
	if err := json.Unmarshal([]byte(out.Stdout), &got); err != nil || out.Code != code || got.State != state || got.Reason != reason {
		t.Errorf("plegd %s: %v, exit %d with %q, %q; want %d with %q, %q\n%s", strings.Join(args, " "), err, out.Code, got.State, got.Reason, code, state, reason, out.Stderr)
	}
}

// TestCommands runs check and status beside a daemon that is healthy, degraded and
// unhealthy, and without one. Endpoints that are none are in the table of faults, and in
// TestCheckWithoutDaemon of cmd/plegd.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.commands(t, healthy, "", 0)
	for _, path := range []string{"/api/v1/status", "/metrics", "/healthz", "/-/healthy", "/-/ready"} {
		if code, body, err := s.plegd.GetControl(path); err != nil || code != http.StatusOK {
			t.Errorf("%s on the control socket: %d %q %v", path, code, body, err)
		}
	}
	kept := s.runtime.Socket + ".kept"
	must(t, os.Rename(s.runtime.Socket, kept))
	s.plegd.AwaitState(5*time.Second, degraded)
	s.commands(t, degraded, health.RuntimeSocketUnlinked, 1)
	must(t, os.Rename(kept, s.runtime.Socket))
	s.plegd.AwaitState(10*time.Second, healthy)
	must(t, os.Remove(s.runtime.CNIConfig))
	s.plegd.AwaitState(8*time.Second, unhealthy)
	s.commands(t, unhealthy, health.NetworkNotReady, 2)

	// Without a daemon status cannot tell; check makes a diagnosis of its own.
	if code, _ := s.plegd.Stop(); code != 0 {
		t.Errorf("plegd ended with %d, want 0", code)
	}
	out := command(t, "status", "--control-socket="+s.plegd.ControlSocket)
	if out.Code != 3 || strings.Count(out.Stderr, "\n") != 1 || !strings.Contains(out.Stderr, s.plegd.ControlSocket) {
		t.Errorf("plegd status with no daemon exits with %d and %q; want 3 and one line that names the socket", out.Code, out.Stderr)
	}
	own := []string{"check", "--control-socket=" + s.plegd.ControlSocket, "--runtime-endpoint=unix://" + s.runtime.Socket}
	verdictIs(t, unhealthy, health.NetworkNotReady, 2, append(own, "-o", "json")...)
	s.runtime.WriteCNIConfig()
	lab.Eventually(t, 10*time.Second, "check with no daemon finds all well", func() error {
		if out := command(t, own...); out.Code != 0 || !strings.Contains(strings.ToLower(out.Stdout), healthy) {
			return fmt.Errorf("exit %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		return nil
	})
}
