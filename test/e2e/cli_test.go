//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// commandLimit is how long check and status may take in these tests.
const commandLimit = 15 * time.Second

// exitCodes are what check and status exit with for a state.
var exitCodes = map[string]int{healthy: 0, degraded: 1, unhealthy: 2}

// checkCommand runs check and status beside the daemon, as text and as JSON,
// and compares what they say.
func (s *subject) checkCommand(t *testing.T, state, reason string, code int) {
	t.Helper()
	for _, command := range []string{"check", "status"} {
		text := lab.Command{Args: []string{command, "--control-socket=" + s.plegd.ControlSocket}}.Run(t, commandLimit)
		if text.Code != code {
			t.Errorf("plegd %s exits with %d, want %d for %s\n%s%s", command, text.Code, code, state, text.Stdout, text.Stderr)
		}
		says(t, "plegd "+command, strings.ToLower(text.Stdout), []string{state, strings.ToLower(reason)})
		got := statusJSON(t, code, command, "-o", "json", "--control-socket="+s.plegd.ControlSocket)
		if got.State != state || got.Reason != reason {
			t.Errorf("plegd %s -o json says %q, %q; want %q, %q", command, got.State, got.Reason, state, reason)
		}
	}
}

func statusJSON(t *testing.T, code int, args ...string) lab.Status {
	t.Helper()
	out := lab.Command{Args: args}.Run(t, commandLimit)
	if out.Code != code {
		t.Errorf("plegd %s exits with %d, want %d\n%s", strings.Join(args, " "), out.Code, code, out.Stderr)
	}
	var s lab.Status
	if err := json.Unmarshal([]byte(out.Stdout), &s); err != nil {
		t.Fatalf("plegd %s: %v\n%s", strings.Join(args, " "), err, out.Stdout)
	}
	return s
}

// TestCommandsBesideDaemon runs check and status beside a daemon.
func TestCommandsBesideDaemon(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.checkCommand(t, healthy, "", 0)

	// What the socket serves is what TCP serves, and more: names.
	for _, path := range []string{"/api/v1/status", "/metrics", "/healthz", "/-/healthy", "/-/ready"} {
		if code, body, err := s.plegd.GetControl(path); err != nil || code != http.StatusOK {
			t.Errorf("%s on the control socket: %d %q %v", path, code, body, err)
		}
	}
	if info, err := os.Stat(s.plegd.ControlSocket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket: %v %v, want mode 0600", info, err)
	}

	kept := s.runtime.Socket + ".kept"
	must(t, os.Rename(s.runtime.Socket, kept))
	s.plegd.AwaitState(5*time.Second, degraded)
	s.checkCommand(t, degraded, health.RuntimeSocketUnlinked, exitCodes[degraded])
	must(t, os.Rename(kept, s.runtime.Socket))
	s.plegd.AwaitState(10*time.Second, healthy)

	must(t, os.Remove(s.runtime.CNIConfig))
	s.plegd.AwaitState(8*time.Second, unhealthy)
	s.checkCommand(t, unhealthy, health.NetworkNotReady, exitCodes[unhealthy])

	// No daemon: status cannot tell, check makes a diagnosis of its own.
	code, _ := s.plegd.Stop()
	if code != 0 {
		t.Errorf("plegd ended with %d, want 0", code)
	}
	out := lab.Command{Args: []string{"status", "--control-socket=" + s.plegd.ControlSocket}}.Run(t, commandLimit)
	if out.Code != 3 || !oneLine(out.Stderr) || !strings.Contains(out.Stderr, s.plegd.ControlSocket) {
		t.Errorf("plegd status with no daemon exits with %d and says %q; want 3 and one line that names the socket", out.Code, out.Stderr)
	}
	got := statusJSON(t, 2, "check", "-o", "json", "--control-socket="+s.plegd.ControlSocket, "--runtime-endpoint="+s.runtime.Socket)
	if got.State != unhealthy || got.Reason != health.NetworkNotReady {
		t.Errorf("plegd check with no daemon says %q, %q; want %q, %q", got.State, got.Reason, unhealthy, health.NetworkNotReady)
	}
	s.runtime.WriteCNIConfig()
	lab.Eventually(t, 10*time.Second, "check with no daemon finds all well", func() error {
		out := lab.Command{Args: []string{
			"check", "--control-socket=" + s.plegd.ControlSocket, "--runtime-endpoint=unix://" + s.runtime.Socket,
		}}.Run(t, commandLimit)
		if out.Code != 0 || !strings.Contains(strings.ToLower(out.Stdout), healthy) {
			return fmt.Errorf("exit %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		return nil
	})
}

// TestBadEndpoint points plegd at what is no runtime. That is a transient condition: the
// daemon runs on and says so in one line, and check says the same.
func TestBadEndpoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// make puts something at the path.
		make func(t *testing.T, path string)
		// reason must be the primary one; says is in what a person reads.
		reason string
		says   []string
		// blind is true where only plegd cannot see the runtime.
		blind bool
		drop  []string
	}{
		{name: "nothing", make: func(*testing.T, string) {}, reason: health.RuntimeSocketMissing, says: []string{"no such"}},
		{name: "plain file", make: plainFile, reason: health.RuntimeNotListening, says: []string{"not a socket"}},
		{name: "nobody listens", make: staleSocket, reason: health.RuntimeNotListening, says: []string{"refused"}},
		{name: "HTTP server", make: impostor(lab.HTTPServer), reason: health.CRIVersionUnsupported, says: []string{"does not speak gRPC"}},
		{name: "garbage", make: impostor(lab.Garbage), reason: health.CRIVersionUnsupported, says: []string{"does not speak gRPC"}},
		{name: "hangs up", make: impostor(lab.HangsUp), reason: health.Unknown, says: []string{"clos"}},
		{
			name: "no permission", make: forbidden, reason: health.RuntimeSocketPermissionDenied, says: []string{"permission denied"},
			blind: true, drop: []string{"dac_override", "dac_read_search"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := lab.Dir(t) + "/r.sock"
			c.make(t, path)
			plegd := lab.NewPlegd(t, path, lab.PlegdOptions{DropCapabilities: c.drop})
			watch := lab.NewWatch(t, plegd)
			from := time.Now()
			named := watch.Await(from, 4*time.Second, "it is named "+c.reason, func(s lab.Sight) bool { return s.Reason == c.reason })
			if want := map[bool]string{false: starting, true: unknown}[c.blind]; named.State != want {
				t.Errorf("the state is %q, want %q", named.State, want)
			}
			plegd.AwaitRelists(10*time.Second, 4)
			for _, reason := range lab.Reasons(watch.Sights(from)) {
				if reason != c.reason && reason != "Starting" && !slices.Contains(machine, reason) {
					t.Errorf("%s was the primary reason: %s", reason, lab.Story(watch.Sights(from), from))
				}
			}
			var evidence string
			for _, r := range named.Reasons {
				evidence += strings.Join(r.Evidence, "; ") + "; "
			}
			says(t, "the evidence", evidence, c.says)

			// The log says it once, and nothing else is loud.
			said := 0
			for _, line := range plegd.Log.Since(0) {
				switch {
				case line.Message() == "verdict changed" && line.String("reason") == c.reason:
					said++
					says(t, "the log", line.Text, c.says)
				case line.Level() == "warn" || line.Level() == "error":
					t.Errorf("a loud line of the log: %s", line.Text)
				}
			}
			if said != 1 {
				t.Errorf("the log says %d times that the reason is %s, want once", said, c.reason)
			}

			out := lab.Command{
				Args:             []string{"check", "--control-socket=" + path + ".none", "--runtime-endpoint=" + path},
				DropCapabilities: c.drop,
			}.Run(t, commandLimit)
			if out.Code == 0 {
				t.Errorf("plegd check exits with 0:\n%s", out.Stdout)
			}
			// The text is wrapped for a terminal. Who sends garbage may have closed
			// the connection before one question in a short life can read it.
			text, parts := strings.Join(strings.Fields(out.Stdout), " "), c.says
			if c.name == "garbage" && strings.Contains(text, "the other end closed the connection") {
				parts = nil
			}
			says(t, "plegd check", text, append(slices.Clone(parts), c.reason, path))
		})
	}
}

func says(t *testing.T, who, text string, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q: %s", who, part, text)
		}
	}
}

func oneLine(text string) bool {
	return strings.HasSuffix(text, "\n") && strings.Count(text, "\n") == 1 && len(text) > 1
}

func plainFile(t *testing.T, path string) {
	must(t, os.WriteFile(path, []byte("not a socket"), 0o666))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func staleSocket(t *testing.T, path string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func forbidden(t *testing.T, path string) {
	lab.HangsUp.Start(t, path)
	must(t, os.Chmod(path, 0))
}

func impostor(i lab.Impostor) func(*testing.T, string) {
	return func(t *testing.T, path string) { i.Start(t, path) }
}
