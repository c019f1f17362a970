//go:build e2e

package systemd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	plegdUnit   = "plegd.service"
	plegdSocket = "plegd.socket"
	fakeRuntime = "/run/fake/containerd.sock"
)

// install is what newSystemdWithPlegd puts in place; the zero value is the
// project's own files and a fake runtime's socket in the settings.
type install struct {
	// Unit and Settings are used in place of the project's own.
	Unit, Settings string
	// DropIn is added to the unit.
	DropIn string
	Files  []lab.SystemdFile
}

// newSystemdWithPlegd boots a systemd with the project's own units, where a
// package would put them.
func newSystemdWithPlegd(t *testing.T, in install) *lab.Systemd {
	t.Helper()
	if in.Unit == "" {
		in.Unit = readDeploy(t, "systemd/"+plegdUnit)
	}
	if in.Settings == "" {
		in.Settings = "PLEGD_RUNTIME_ENDPOINT=unix://" + fakeRuntime + "\n"
	}
	files := []lab.SystemdFile{
		{Path: "/usr/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		{Path: "/usr/lib/systemd/system/" + plegdUnit, Text: in.Unit},
		{Path: "/usr/lib/systemd/system/" + plegdSocket, Text: readDeploy(t, "systemd/"+plegdSocket)},
		{Path: settings, Text: in.Settings},
		{Path: "/run/fake/keep"},
	}
	if in.DropIn != "" {
		files = append(files, lab.SystemdFile{Path: "/etc/systemd/system/" + plegdUnit + ".d/test.conf", Text: in.DropIn})
	}
	return lab.NewSystemd(t, append(files, in.Files...)...)
}

// startFake starts a fake runtime on the socket that the settings name.
func startFake(s *lab.Systemd, unit string) {
	s.Run("systemd-run", "--quiet", "--unit="+unit, "/usr/bin/plegd", "simulate", "--socket="+fakeRuntime, "--pods=10", "--containers=2")
}

// within polls a condition, and returns its last error when the time is over.
func within(limit time.Duration, condition func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// statusText waits until the line that systemctl status shows has a word that
// begins so.
func statusText(t *testing.T, s *lab.Systemd, word string) {
	t.Helper()
	if err := statusSays(s, word); err != nil {
		t.Fatal(err)
	}
}

func statusSays(s *lab.Systemd, word string) error {
	return within(15*time.Second, func() error {
		// A space before it: unhealthy is not healthy.
		if text := s.Property(plegdUnit, "StatusText"); !strings.Contains(" "+text, " "+word) {
			return fmt.Errorf("STATUS= is %q, want it to hold %q", text, word)
		}
		return nil
	})
}

// statusInside asks plegd over its control socket, with any exit status.
func statusInside(t *testing.T, s *lab.Systemd) lab.Status {
	t.Helper()
	out, _ := s.TryRun("plegd", "status", "-o", "json")
	var status lab.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("plegd status -o json: %v\n%s", err, out)
	}
	return status
}

// runningAgain waits until the unit runs as another process.
func runningAgain(s *lab.Systemd, before string) error {
	return within(15*time.Second, func() error {
		if now, state := s.Property(plegdUnit, "MainPID"), s.Property(plegdUnit, "SubState"); now == before || state != "running" {
			return fmt.Errorf("plegd is %s as process %s, and was process %s before", state, now, before)
		}
		return nil
	})
}
