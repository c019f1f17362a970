//go:build e2e

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestSystemdUnit runs plegd under a real systemd, with all of its unit's
// hardening, through a node's life: before the runtime is there, with it,
// killed, and stopped.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	s := newSystemdWithPlegd(t, install{})

	// start returns when READY=1 has come: the first relist was attempted.
	start := time.Now()
	s.Run("systemctl", "start", plegdUnit)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("plegd took %s to be ready where no runtime exists", took)
	}
	statusText(t, s, socketMissing)

	startFake(s, "fake")
	statusText(t, s, healthy)
	s.Run("plegd", "check")

	// The journal has the log's lines, with their fields.
	out := s.Run("journalctl", "--unit="+plegdUnit, "--output=cat", "--grep=verdict changed")
	var line map[string]any
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &line); err != nil {
		t.Fatalf("the journal's line about %s: %v\n%s", socketMissing, err, out)
	}
	for field, want := range map[string]string{"msg": "verdict changed", "state": "starting", "reason": socketMissing} {
		if got := line[field]; got != want {
			t.Errorf("in the journal %s is %v, want %q", field, got, want)
		}
	}

	// It fixes without anybody's doing.
	s.Run("systemctl", "stop", "fake.service")
	statusText(t, s, "Runtime")
	startFake(s, "fake2")
	statusText(t, s, healthy)

	start = time.Now()
	s.Run("systemctl", "stop", plegdUnit)
	if took := time.Since(start); took > 4*time.Second {
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

// TestUnitChecks are what must hold of plegd.service.
func TestUnitChecks(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*testing.T) error{
		"not held back by a stuck containerd": notHeldBack,
		"ready without a runtime":             readyWithoutRuntime,
		"killed often":                        killedOften,
		"the watchdog ends a hung plegd":      watchdog,
		"last seen survives":                  lastSeenSurvives,
		"the settings are read":               settingsRead,
		"its resources are limited":           bounded,
		"the exposure is at most 2.1":         exposure,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := check(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// notHeldBack starts plegd in one transaction with a containerd that never
// becomes ready, as at a boot.
func notHeldBack(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{Files: []lab.SystemdFile{{
		Path: "/etc/systemd/system/containerd.service",
		Text: "[Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n",
	}}})
	s.Run("systemctl", "start", "--no-block", "containerd.service", plegdUnit)
	err := within(30*time.Second, func() error {
		if state := s.Property(plegdUnit, "ActiveState"); state != "active" {
			return fmt.Errorf("plegd is %s", state)
		}
		return nil
	})
	if state := s.Property("containerd.service", "ActiveState"); state != "activating" {
		t.Errorf("containerd is %s, and was to be stuck", state)
	}
	return err
}

// readyWithoutRuntime starts plegd beside a socket that nobody listens on any
// more, and beside none.
func readyWithoutRuntime(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{})
	for _, before := range []string{"rm -f " + fakeRuntime, "plegd simulate --socket=" + fakeRuntime + " & sleep 1; kill -KILL $!"} {
		s.Run("sh", "-c", before)
		out, err := s.TryRun("systemctl", "start", plegdUnit)
		if state := s.Property(plegdUnit, "ActiveState"); err != nil || state != "active" {
			return fmt.Errorf("after %q plegd is %s, want active: %s", before, state, out)
		}
		s.Run("systemctl", "stop", plegdUnit)
	}
	return nil
}

// killedOften kills plegd more often than systemd's default start limit allows:
// 5 starts in 10 s, here in 10 min, so that a slow machine meets it too.
func killedOften(t *testing.T) error {
	limit := lab.SystemdFile{Path: "/etc/systemd/system.conf.d/lab.conf", Text: "[Manager]\nDefaultStartLimitIntervalSec=10min\n"}
	unit := strings.Replace(readDeploy(t, "systemd/"+plegdUnit), "RestartSec=1s", "RestartSec=100ms", 1)
	s := newSystemdWithPlegd(t, install{Unit: unit, Files: []lab.SystemdFile{limit}})
	s.Run("systemctl", "start", plegdUnit)
	const kills = 8
	for range kills {
		pid := s.Property(plegdUnit, "MainPID")
		s.Run("systemctl", "kill", "--signal=KILL", plegdUnit)
		err := within(10*time.Second, func() error {
			now, state := s.Property(plegdUnit, "MainPID"), s.Property(plegdUnit, "ActiveState")
			if state != "active" || now == pid {
				return fmt.Errorf("plegd is %s", state)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if got := s.Property(plegdUnit, "NRestarts"); got != fmt.Sprint(kills) {
		return fmt.Errorf("systemd has restarted plegd %s times, want %d", got, kills)
	}
	return nil
}

// watchdog shows that the watchdog is fed while the runtime is missing, and ends
// a plegd that has stopped.
func watchdog(t *testing.T) error {
	quick := strings.NewReplacer("WatchdogSec=5min", "WatchdogSec=2s", "TimeoutAbortSec=5s", "TimeoutAbortSec=1s")
	s := newSystemdWithPlegd(t, install{Unit: quick.Replace(readDeploy(t, "systemd/"+plegdUnit))})
	s.Run("systemctl", "start", plegdUnit)
	pid := s.Property(plegdUnit, "MainPID")
	lab.Throughout(t, 5*time.Second, "the watchdog is fed", func() error {
		if now := s.Property(plegdUnit, "MainPID"); now != pid {
			return fmt.Errorf("plegd has become process %s, and was %s", now, pid)
		}
		return nil
	})
	s.Run("kill", "-STOP", pid)
	if err := runningAgain(s, pid); err != nil {
		s.Run("kill", "-CONT", pid)
		return err
	}
	return nil
}

// lastSeenSurvives kills plegd while the runtime is away.
func lastSeenSurvives(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{})
	s.Run("systemctl", "start", plegdUnit)
	startFake(s, "fake")
	if err := statusSays(s, healthy); err != nil {
		return err
	}
	s.Run("systemctl", "stop", "fake.service")
	if err := statusSays(s, "Runtime"); err != nil {
		return err
	}
	before := statusInside(t, s)
	if before.LastSeen == nil {
		return errors.New("plegd has lost its last seen")
	}
	// It writes every few seconds: what it has last seen must be there first.
	err := within(10*time.Second, func() error {
		since := fmt.Sprintf("@%d", before.LastSeen.Unix()+2)
		if out, _ := s.TryRun("find", stateDir, "-type", "f", "-newermt", since); !strings.HasPrefix(out, stateDir) {
			return errors.New("last seen is not saved: nothing in " + stateDir + " is newer than that")
		}
		return nil
	})
	if err != nil {
		return err
	}
	pid := s.Property(plegdUnit, "MainPID")
	s.Run("kill", "-KILL", pid)
	if err := runningAgain(s, pid); err != nil {
		return err
	}
	after := statusInside(t, s)
	if after.LastSeen == nil || after.LastSeen.Sub(*before.LastSeen).Abs() > 100*time.Millisecond {
		return fmt.Errorf("last seen is %v after a restart, want %v as before", after.LastSeen, before.LastSeen)
	}
	return nil
}

// settingsRead changes a setting, and then makes a mistake in one.
func settingsRead(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{Settings: "PLEGD_RELIST_PERIOD=250ms\nPLEGD_RELIST_THRESHOLD=1m\n"})
	s.Run("systemctl", "start", plegdUnit)
	code, body, err := s.Get("/metrics")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("/metrics: %d %w", code, err)
	}
	for _, want := range []string{"pleg_relist_period_seconds 0.25\n", "pleg_threshold_seconds 60\n"} {
		if !strings.Contains(body, want) {
			return fmt.Errorf("/metrics has no %q: relist_period and relist_threshold are not as in %s", want, settings)
		}
	}
	s.Run("sh", "-c", "echo PLEGD_RELIST_PERIOD=often >"+settings)
	if _, err := s.TryRun("systemctl", "restart", plegdUnit); err == nil {
		return errors.New("plegd starts with relist_period often")
	}
	want := `plegd: PLEGD_RELIST_PERIOD: --relist-period: "often": want a duration such as 500ms, 1s or 3m`
	if out := s.Run("journalctl", "--unit="+plegdUnit, "--output=cat"); !strings.Contains(out, want) {
		return fmt.Errorf("the journal does not say %q:\n%s", want, out)
	}
	return nil
}

// bounded compares what the kernel and systemd have with what the unit says.
func bounded(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{})
	s.Run("systemctl", "start", plegdUnit)
	for property, want := range map[string]string{
		"MemoryMax": "268435456", "CPUQuotaPerSecUSec": "1s", "TasksMax": "128", "LimitNOFILE": "4096", "OOMScoreAdjust": "-900",
		"NoNewPrivileges": "yes", "CapabilityBoundingSet": "cap_sys_ptrace", "ProtectSystem": "strict",
	} {
		if got := s.Property(plegdUnit, property); got != want {
			return fmt.Errorf("%s is %q, want %q", property, got, want)
		}
	}
	for _, limit := range []struct {
		want  string
		files []string
	}{
		{"268435456", []string{"memory.max", "memory.limit_in_bytes"}},
		{"128", []string{"pids.max"}},
	} {
		if got, err := s.CgroupValue(plegdUnit, limit.files...); err != nil || got != limit.want {
			return fmt.Errorf("the kernel's %s is %q (%w), want %s", limit.files[0], got, err, limit.want)
		}
	}
	out := s.Run("grep", "Max open files", "/proc/"+s.Property(plegdUnit, "MainPID")+"/limits")
	if fields := strings.Fields(out); len(fields) < 5 || fields[3] != "4096" {
		return fmt.Errorf("the kernel's limit of open files is %q, want 4096", out)
	}
	return nil
}

// exposure has verify.sh judge the unit.
func exposure(t *testing.T) error {
	lab.RequirePrograms(t, "systemd-analyze")
	if out, err := exec.Command("bash", "../../deploy/systemd/verify.sh").CombinedOutput(); err != nil {
		return fmt.Errorf("verify.sh: %w\n%s", err, out)
	}
	return nil
}

// TestSettingsFile starts plegd with every setting of plegd.default switched on:
// the values there are the defaults, so nothing may change.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(readDeploy(t, "systemd/plegd.default"), "\n#PLEGD_", "\nPLEGD_")
	s := newSystemdWithPlegd(t, install{Settings: text})
	if out, err := s.TryRun("systemctl", "start", plegdUnit); err != nil {
		t.Fatalf("plegd does not start: %s", out)
	}
	if out := s.Run("journalctl", "--unit="+plegdUnit, "--output=cat"); strings.Contains(out, "has no effect") {
		t.Errorf("an unknown variable:\n%s", out)
	}
	if code, _, err := s.Get("/-/healthy"); err != nil || code != http.StatusOK {
		t.Errorf("/-/healthy: %d %v", code, err)
	}
}
