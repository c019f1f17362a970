//go:build e2e

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/systemd"
)

// TestUnit runs plegd under a real systemd, with all of its unit's hardening and every
// setting of plegd.default switched on (the values there are the defaults), through a
// node's life: without a runtime, with one, killed, stopped, and beside a stale socket.
func TestUnit(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(readFile(t, "deploy/systemd/plegd.default"), "\n#PLEGD_", "\nPLEGD_")
	n := newNode(t, unitFile(t), text+endpoint)
	// start returns when READY=1 has come: the first relist was attempted.
	start := time.Now()
	n.Run("systemctl", "start", plegdUnit)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("plegd took %s to be ready where no runtime exists", took)
	}
	n.awaitText("RuntimeSocketMissing")
	n.isLimited()

	n.startFake("fake")
	n.awaitText(healthy)
	n.Run("plegd", "check")
	// The journal has the log's lines, with their fields.
	first, _, _ := strings.Cut(n.journal("--grep=verdict changed"), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Fatalf("the journal's first verdict: %v\n%s", err, first)
	}
	for field, want := range map[string]any{"msg": "verdict changed", "state": "starting", "reason": "RuntimeSocketMissing"} {
		check.Equal(t, line[field], want, "in the journal %s", field)
	}

	n.lastSeenSurvives()
	n.startFake("fake2")
	n.awaitText(healthy)

	start = time.Now()
	n.Run("systemctl", "stop", plegdUnit)
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("systemctl stop took %s", took)
	}
	n.is("after a stop", map[string]string{"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"})
	// The log shows what the hardening denies.
	journal := strings.ToLower(n.journal())
	for _, complaint := range []string{"permission denied", "operation not permitted", "read-only file system", "panic", "has no effect"} {
		if strings.Contains(journal, complaint) {
			t.Errorf("the journal has %q:\n%s", complaint, journal)
		}
	}
	n.Run("systemctl", "kill", "--signal=KILL", "fake2.service")
	n.Run("systemctl", "start", plegdUnit)
	n.is("beside a stale socket", map[string]string{"ActiveState": "active"})
}

// isLimited compares the limits of the kernel and of systemd with the unit's.
func (n *node) isLimited() {
	n.t.Helper()
	n.is("by the unit", map[string]string{
		"MemoryMax": "268435456", "CPUQuotaPerSecUSec": "1s", "TasksMax": "128", "LimitNOFILE": "4096", "OOMScoreAdjust": "-900",
		"NoNewPrivileges": "yes", "CapabilityBoundingSet": "cap_sys_ptrace cap_syslog", "ProtectSystem": "strict",
	})
	for want, files := range map[string][]string{"268435456": {"memory.max", "memory.limit_in_bytes"}, "128": {"pids.max"}} {
		if got, err := n.CgroupValue(plegdUnit, files...); err != nil || got != want {
			n.t.Errorf("the kernel's %s is %q (%v), want %s", files[0], got, err, want)
		}
	}
	out := n.Run("grep", "Max open files", "/proc/"+n.Property(plegdUnit, "MainPID")+"/limits")
	if fields := strings.Fields(out); len(fields) < 5 || fields[3] != "4096" {
		n.t.Errorf("the kernel's limit of open files is %q, want 4096", out)
	}
}

// lastSeenSurvives kills plegd while the runtime is away.
func (n *node) lastSeenSurvives() {
	n.t.Helper()
	n.Run("systemctl", "stop", "fake.service")
	n.awaitText("Runtime")
	before, err := n.status()
	if err != nil || before.LastSeen == nil {
		n.t.Fatalf("plegd has no last seen: %v", err)
	}
	// It is written every few seconds: the kill must come after that.
	n.await("last seen is saved", func() error {
		since := fmt.Sprintf("@%d", before.LastSeen.Unix()+2)
		if out, _ := n.TryRun("find", stateDir, "-type", "f", "-newermt", since); !strings.HasPrefix(out, stateDir) {
			return errors.New("nothing in " + stateDir + " is newer than that")
		}
		return nil
	})
	pid := n.Property(plegdUnit, "MainPID")
	n.Run("kill", "-KILL", pid)
	n.awaitRestart(pid)
	after, err := n.status()
	if err != nil || after.LastSeen == nil || after.LastSeen.Sub(*before.LastSeen).Abs() > 100*time.Millisecond {
		n.t.Errorf("last seen is %v after a restart (%v), want %v as before", after.LastSeen, err, before.LastSeen)
	}
}

// TestRestarts kills plegd more often than systemd's default start limit allows (5 starts
// in 10 s, here in 10 min, so that a slow machine meets it too); then the watchdog must be
// fed while the runtime is missing, and end a plegd that has stopped.
func TestRestarts(t *testing.T) {
	t.Parallel()
	quick := strings.NewReplacer("RestartSec=1s", "RestartSec=100ms", "WatchdogSec=5min", "WatchdogSec=2s", "TimeoutAbortSec=5s", "TimeoutAbortSec=1s")
	n := newNode(t, quick.Replace(unitFile(t)), endpoint, systemd.File{
		Path: "/etc/systemd/system.conf.d/lab.conf", Text: "[Manager]\nDefaultStartLimitIntervalSec=10min\n",
	})
	n.Run("systemctl", "start", plegdUnit)
	const kills = 8
	for range kills {
		pid := n.Property(plegdUnit, "MainPID")
		n.Run("systemctl", "kill", "--signal=KILL", plegdUnit)
		n.awaitRestart(pid)
	}
	n.is("after the kills", map[string]string{"NRestarts": fmt.Sprint(kills)})

	pid := n.Property(plegdUnit, "MainPID")
	lab.Throughout(t, 5*time.Second, "the watchdog is fed", func() error {
		if now := n.Property(plegdUnit, "MainPID"); now != pid {
			return fmt.Errorf("plegd has become process %s, and was %s", now, pid)
		}
		return nil
	})
	for _, signal := range []string{"-ABRT", "-STOP"} { // as a crash ends plegd, and as systemd's watchdog does
		pid := n.Property(plegdUnit, "MainPID")
		n.Run("kill", signal, pid)
		n.awaitRestart(pid)
	}
}

// TestBoot starts plegd in one transaction with a containerd that never becomes ready, as
// at a boot, with settings that the metrics must show; then a setting is wrong.
func TestBoot(t *testing.T) {
	t.Parallel()
	n := newNode(t, unitFile(t), "PLEGD_RELIST_PERIOD=250ms\nPLEGD_RELIST_THRESHOLD=1m\n", systemd.File{
		Path: "/etc/systemd/system/containerd.service",
		Text: "[Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n",
	})
	n.Run("systemctl", "start", "--no-block", "containerd.service", plegdUnit)
	n.await("plegd is active", func() error {
		if state := n.Property(plegdUnit, "ActiveState"); state != "active" {
			return errors.New(state)
		}
		return nil
	})
	check.Equal(t, n.Property("containerd.service", "ActiveState"), "activating", "containerd is, and was to be stuck")
	_, body, err := n.Get("/metrics")
	for _, want := range []string{"pleg_relist_period_seconds 0.25\n", "pleg_threshold_seconds 60\n"} {
		check.Contains(t, body, want, "/metrics: the settings are not as in %s (%v)", settings, err)
	}
	n.Run("sh", "-c", "echo PLEGD_RELIST_PERIOD=often >"+settings)
	if _, err := n.TryRun("systemctl", "restart", plegdUnit); err == nil {
		t.Error("plegd starts with the relist period often")
	}
	want := `plegd: PLEGD_RELIST_PERIOD: --relist-period: "often": want a duration such as 500ms, 1s or 3m`
	check.Contains(t, n.journal(), want, "the journal does not say")
}

// TestSocketActivation has systemd hold the web port: the first scrape starts plegd, and
// no scrape is refused while it restarts.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	n := newNode(t, unitFile(t), "PLEGD_WEB_SYSTEMD_SOCKET=true\n")
	n.Run("systemctl", "start", plegdSocket)
	get := func() error {
		code, _, err := n.Get("/metrics")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d", code)
		}
		return err
	}
	if err := get(); err != nil {
		t.Fatalf("the first scrape: %v", err)
	}
	// The scrape may be answered before the first relist, after which plegd is ready.
	n.awaitRestart("0")
	scrapes := 0
	stop := lab.Every(t, 20*time.Millisecond, func() {
		scrapes++
		// One that was being answered when plegd stopped may be broken off.
		if err := get(); errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("scrape %d beside the restarts: %v", scrapes, err)
		}
	})
	for range 3 {
		n.Run("systemctl", "restart", plegdUnit)
	}
	n.await("plegd serves", get)
	if stop(); scrapes < 3 {
		t.Errorf("only %d scrapes", scrapes)
	}
}
