//go:build e2e

package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/systemd"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const (
	plegdUnit   = "plegd.service"
	plegdSocket = "plegd.socket"
	settings    = "/etc/default/plegd"
	stateDir    = "/var/lib/plegd"
	fakeRuntime = "/run/fake/containerd.sock"
	// endpoint is the setting with the fake runtime's socket.
	endpoint = "PLEGD_RUNTIME_ENDPOINT=unix://" + fakeRuntime + "\n"

	healthy = "healthy"
	frozen  = "RuntimeFrozen"
)

// readFile returns a file of the repository.
func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", path))
	lab.Must(t, err)
	return string(b)
}

// node is a systemd on which plegd runs.
type node struct {
	*systemd.Systemd
	t *testing.T
}

// newNode boots a systemd with the project's units, where a package would put them.
func newNode(t *testing.T, unit, text string, files ...systemd.File) *node {
	t.Helper()
	return &node{t: t, Systemd: systemd.Boot(t, append([]systemd.File{
		{Path: "/usr/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		{Path: "/usr/lib/systemd/system/" + plegdUnit, Text: unit},
		{Path: "/usr/lib/systemd/system/" + plegdSocket, Text: readFile(t, "deploy/systemd/"+plegdSocket)},
		{Path: settings, Text: text},
		{Path: "/run/fake/keep"},
	}, files...)...)}
}

// bareNode boots a systemd without plegd, in which packages may start their services: other
// tests of this machine may have forbidden that by policy-rc.d.
func bareNode(t *testing.T, files ...systemd.File) *node {
	t.Helper()
	policy := systemd.File{Path: "/usr/sbin/policy-rc.d", Text: "#!/bin/sh\nexit 0\n", Mode: 0o755}
	return &node{t: t, Systemd: systemd.Boot(t, append([]systemd.File{policy}, files...)...)}
}

func unitFile(t *testing.T) string { t.Helper(); return readFile(t, "deploy/systemd/"+plegdUnit) }

// startFake starts a fake runtime at the socket that the settings name.
func (n *node) startFake(unit string) {
	n.t.Helper()
	n.Run("systemd-run", "--quiet", "--unit="+unit, "/usr/bin/plegd", "simulate", "--socket="+fakeRuntime, "--pods=10", "--containers=2")
}

// await waits for a condition.
func (n *node) await(what string, condition func() error) {
	n.t.Helper()
	lab.Eventually(n.t, time.Minute, what, condition)
}

// awaitText waits until the line that systemctl status shows has a word that begins so.
func (n *node) awaitText(word string) {
	n.t.Helper()
	n.await("the unit's status text", func() error {
		// A space before it: unhealthy is not healthy.
		if text := n.Property(plegdUnit, "StatusText"); !strings.Contains(" "+text, " "+word) {
			return fmt.Errorf("STATUS= is %q, want it to hold %q", text, word)
		}
		return nil
	})
}

// status asks plegd over its control socket, with any exit status.
func (n *node) status() (s lab.Status, err error) {
	out, _ := n.TryRun("plegd", "status", "-o", "json")
	if err = facts.Unmarshal([]byte(out), &s); err != nil {
		err = fmt.Errorf("plegd status -o json: %w\n%s", err, out)
	}
	return s, err
}

func (n *node) awaitSources(up bool, names ...string) {
	n.t.Helper()
	lab.AwaitSources(n.t, time.Minute, n.status, up, names...)
}

// is checks properties of plegd's unit.
func (n *node) is(when string, properties map[string]string) {
	n.t.Helper()
	for property, want := range properties {
		if got := n.Property(plegdUnit, property); got != want {
			n.t.Fatalf("%s, %s is %q, want %q", when, property, got, want)
		}
	}
}

// awaitRestart waits until the unit runs as another process.
func (n *node) awaitRestart(before string) {
	n.t.Helper()
	n.await("plegd is restarted", func() error {
		if now, state := n.Property(plegdUnit, "MainPID"), n.Property(plegdUnit, "SubState"); now == before || state != "running" {
			return fmt.Errorf("plegd is %s as process %s, and was process %s before", state, now, before)
		}
		return nil
	})
}

// journal returns the unit's messages.
func (n *node) journal(args ...string) string {
	n.t.Helper()
	return n.Run(append([]string{"journalctl", "--unit=" + plegdUnit, "--no-pager", "--output=cat"}, args...)...)
}
