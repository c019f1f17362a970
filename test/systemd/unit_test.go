//go:build e2e

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	plegdUnit   = "plegd.service"
	fakeRuntime = "/run/fake/containerd.sock"
)

// newSystemdWithPlegd boots a systemd with the project's own unit, as a package
// installs it.
func newSystemdWithPlegd(t *testing.T, dropIn string) *lab.Systemd {
	t.Helper()
	unit := "../../deploy/systemd/" + plegdUnit
	if _, err := os.Stat(unit); err != nil {
		t.Fatal(err)
	}
	files := []lab.SystemdFile{
		{Path: "/usr/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		{Path: "/etc/systemd/system/" + plegdUnit, From: unit},
		{Path: "/etc/default/plegd", Text: "PLEGD_RUNTIME_ENDPOINT=unix://" + fakeRuntime + "\n"},
		{Path: "/run/fake/keep"},
	}
	if dropIn != "" {
		files = append(files, lab.SystemdFile{Path: "/etc/systemd/system/" + plegdUnit + ".d/test.conf", Text: dropIn})
	}
	return lab.NewSystemd(t, files...)
}

// TestSystemdUnit runs plegd under a real systemd, with all of its unit's
// hardening, through a node's life: before the runtime is there, with it,
// killed, and stopped.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	s := newSystemdWithPlegd(t, "")

	// start returns when READY=1 has come: the first relist was attempted.
	start := time.Now()
	s.Run("systemctl", "start", plegdUnit)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("plegd took %s to be ready where no runtime exists", took)
	}
	statusText(t, s, socketMissing)

	s.Run("systemd-run", "--quiet", "--unit=fake", "--property=KillMode=process", "/usr/bin/plegd", "simulate", "--socket="+fakeRuntime, "--pods=10", "--containers=2")
	statusText(t, s, healthy)
	s.Run("plegd", "check")
	before := statusInside(t, s)
	if before.State != healthy || before.LastSeen == nil {
		t.Fatalf("plegd status says %+v, want it healthy", before)
	}

	// Killed, it comes back, and remembers what it has last seen.
	s.Run("systemctl", "stop", "fake.service")
	statusText(t, s, "Runtime")
	before = statusInside(t, s)
	if before.LastSeen == nil {
		t.Fatal("plegd has forgotten what it has last seen")
	}
	// It writes every few seconds: what it has last seen must be there first.
	lab.Eventually(t, 10*time.Second, "the state is saved", func() error {
		since := fmt.Sprintf("@%d", before.LastSeen.Unix()+2)
		if out := s.Run("find", "/var/lib/plegd", "-type", "f", "-newermt", since); out == "" {
			return errors.New("nothing in /var/lib/plegd is newer than that")
		}
		return nil
	})
	pid := s.Property(plegdUnit, "MainPID")
	s.Run("kill", "-KILL", pid)
	lab.Eventually(t, 5*time.Second, "systemd has started plegd again", func() error {
		if now, state := s.Property(plegdUnit, "MainPID"), s.Property(plegdUnit, "SubState"); now == pid || state != "running" {
			return fmt.Errorf("MainPID is %s, as before %s, and it is %s", now, pid, state)
		}
		return nil
	})
	after := statusInside(t, s)
	if after.LastSeen == nil || after.LastSeen.Sub(*before.LastSeen).Abs() > 100*time.Millisecond {
		t.Errorf("last seen is %v after a restart, want %v as before", after.LastSeen, before.LastSeen)
	}
	if got := s.Property(plegdUnit, "NRestarts"); got != "1" {
		t.Errorf("systemd has restarted plegd %s times, want 1", got)
	}

	// It mends without anybody's doing.
	s.Run("systemd-run", "--quiet", "--unit=fake2", "/usr/bin/plegd", "simulate", "--socket="+fakeRuntime, "--pods=10", "--containers=2")
	statusText(t, s, healthy)

	start = time.Now()
	s.Run("systemctl", "stop", plegdUnit)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("systemctl stop took %s", took)
	}
	for property, want := range map[string]string{"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"} {
		if got := s.Property(plegdUnit, property); got != want {
			t.Errorf("%s is %q after a stop, want %q", property, got, want)
		}
	}
	// What the hardening denies shows up as a complaint.
	journal := s.Run("journalctl", "--unit="+plegdUnit, "--no-pager", "--output=cat")
	for _, complaint := range []string{"permission denied", "operation not permitted", "read-only file system", "panic"} {
		if strings.Contains(strings.ToLower(journal), complaint) {
			t.Errorf("the journal has %q:\n%s", complaint, journal)
		}
	}
}

// TestSystemdWatchdog shows that systemd's watchdog is fed while the runtime is
// missing, and ends a plegd that has stopped.
func TestSystemdWatchdog(t *testing.T) {
	t.Parallel()
	s := newSystemdWithPlegd(t, "[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n")
	s.Run("systemctl", "start", plegdUnit)
	pid := s.Property(plegdUnit, "MainPID")
	lab.Throughout(t, 6*time.Second, "the watchdog is fed", func() error {
		if now := s.Property(plegdUnit, "MainPID"); now != pid {
			return fmt.Errorf("plegd has become process %s, and was %s", now, pid)
		}
		return nil
	})
	s.Run("kill", "-STOP", pid)
	took := lab.Eventually(t, 10*time.Second, "the watchdog has ended plegd and systemd has started it again", func() error {
		if now, state := s.Property(plegdUnit, "MainPID"), s.Property(plegdUnit, "SubState"); now == pid || state != "running" {
			return fmt.Errorf("MainPID is %s and it is %s", now, state)
		}
		return nil
	})
	lab.Report(t, "a stopped plegd under a watchdog of 2 s: running again after %s", took.Round(10*time.Millisecond))
}

// statusText waits until the line that systemctl status shows holds a word.
func statusText(t *testing.T, s *lab.Systemd, word string) {
	t.Helper()
	lab.Eventually(t, 8*time.Second, "STATUS= holds "+word, func() error {
		if text := s.Property(plegdUnit, "StatusText"); !strings.Contains(text, word) {
			return fmt.Errorf("it is %q", text)
		}
		return nil
	})
}

// statusInside asks plegd over its control socket, whatever the exit code.
func statusInside(t *testing.T, s *lab.Systemd) lab.Status {
	t.Helper()
	out, _ := s.TryRun("plegd", "status", "-o", "json")
	var status lab.Status
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("plegd status -o json: %v\n%s", err, out)
	}
	return status
}
