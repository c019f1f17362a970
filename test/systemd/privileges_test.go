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

// TestUnitPrivileges takes each privilege that the unit leaves to plegd from it,
// one at a time, and shows what breaks: none of them is there for nothing.
func TestUnitPrivileges(t *testing.T) {
	t.Parallel()
	s := newSystemdWithPlegd(t, install{Files: activated})
	startFake(s, "fake")
	s.Run("systemctl", "start", "activated.socket")
	sources := []string{"queue", "cgroup", "children", "connections", "node", "process", "state"}

	p := &privileges{Systemd: s}
	if err := p.start(""); err != nil {
		t.Fatal(err)
	}
	statusText(t, s, healthy)
	for _, source := range sources {
		p.awaitSource(t, source, true)
	}
	s.Run("curl", "-sSf", "-o", "/dev/null", "http://127.0.0.1:20290/metrics")
	s.Run("curl", "-sSf", "-o", "/dev/null", "http://[::1]:20290/metrics")

	// The process behind a socket that systemd made is found among all processes.
	if err := p.start(watchActivated); err != nil {
		t.Fatal(err)
	}
	p.awaitSource(t, "process", true)

	families := func(left string) string { return "RestrictAddressFamilies=\nRestrictAddressFamilies=" + left + "\n" }
	for _, tt := range []struct {
		name, dropIn string
		// What breaks: the start; a source of evidence; or what the journal says.
		start   bool
		source  string
		journal string
		status  string
	}{
		{name: "root", dropIn: "User=nobody\n", status: "RuntimeSocketPermissionDenied"},
		{name: "the view into other processes", dropIn: watchActivated + "CapabilityBoundingSet=\n", source: "process"},
		{name: "unix sockets", dropIn: families("AF_INET AF_INET6 AF_NETLINK"), start: true},
		{name: "internet sockets", dropIn: families("AF_UNIX AF_NETLINK"), journal: "the web address cannot be served"},
		{name: "netlink sockets", dropIn: families("AF_UNIX AF_INET AF_INET6"), source: "queue"},
		{name: "its state directory", dropIn: "StateDirectory=\n", source: "state"},
		{name: "execution of itself", dropIn: "ExecPaths=\n", start: true},
		{name: "the rest of /proc", dropIn: "ProcSubset=pid\n", source: "node"},
		{name: "the node's network namespace", dropIn: "PrivateNetwork=yes\n", journal: "no listener"},
		{name: "system calls on files", dropIn: "SystemCallFilter=~@file-system\n", start: true},
		{name: "system calls on the network", dropIn: "SystemCallFilter=~@network-io\n", start: true},
		{name: "system calls on events", dropIn: "SystemCallFilter=~@io-event\n", start: true},
		{name: "threads", dropIn: "SystemCallFilter=~@process\n", start: true},
	} {
		began := time.Now()
		err := p.start("[Service]\nRestart=no\n" + tt.dropIn)
		switch {
		case tt.start && err == nil:
			t.Errorf("without %s plegd starts", tt.name)
		case tt.start:
		case err != nil:
			t.Errorf("without %s plegd does not start: %v", tt.name, err)
		case tt.source != "":
			p.awaitSource(t, tt.source, false)
		case tt.status != "":
			statusText(t, s, tt.status)
		case tt.name == "the node's network namespace":
			p.awaitListening(t, false)
		default:
			if err := within(10*time.Second, func() error {
				out := s.Run("journalctl", "--unit="+plegdUnit, "--no-pager", "--output=cat", fmt.Sprintf("--since=@%d", began.Unix()))
				if !strings.Contains(out, tt.journal) {
					return fmt.Errorf("it says %s", out)
				}
				return nil
			}); err != nil {
				t.Errorf("without %s the journal does not say %q: %v", tt.name, tt.journal, err)
			}
		}
	}
	if err := p.start(""); err != nil {
		t.Fatal(err)
	}
	p.awaitListening(t, true)
}

// activated is a runtime's socket that systemd holds. What the kernel reports of
// its connections is systemd, so the process behind it is only found by looking
// into the descriptors of all processes, which takes CAP_SYS_PTRACE.
var activated = []lab.SystemdFile{
	{Path: "/etc/systemd/system/activated.socket", Text: "[Socket]\nListenStream=/run/fake/activated.sock\nSocketMode=0660\n"},
	{Path: "/etc/systemd/system/activated.service", Text: "[Service]\nExecStart=/lib/systemd/systemd-socket-proxyd " + fakeRuntime + "\n"},
}

// watchActivated is a drop-in that has plegd watch that socket.
const watchActivated = "[Service]\nEnvironmentFile=\nEnvironment=PLEGD_RUNTIME_ENDPOINT=unix:///run/fake/activated.sock\n"

// privileges is a systemd whose plegd is started again and again with other
// settings.
type privileges struct{ *lab.Systemd }

// start starts plegd again with a drop-in.
func (p *privileges) start(dropIn string) error {
	_, _ = p.TryRun("systemctl", "stop", plegdUnit)
	_, _ = p.TryRun("systemctl", "reset-failed", plegdUnit)
	p.Run("sh", "-c", `mkdir -p "$1" && printf %s "$2" >"$1/privilege.conf" && rm -rf /var/lib/plegd /var/lib/private/plegd /run/plegd`, "sh", "/etc/systemd/system/"+plegdUnit+".d", dropIn)
	p.Run("systemctl", "daemon-reload")
	out, err := p.TryRun("systemctl", "start", plegdUnit)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// evidence is the state of plegd's sources.
func (p *privileges) evidence() (e struct {
	Sources map[string]struct {
		Up  bool
		Err string
	}
	Queue *struct{ Listening bool }
}, err error) {
	out, _ := p.TryRun("plegd", "status", "-o", "json")
	var doc struct {
		Facts struct{ Evidence *json.RawMessage }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return e, fmt.Errorf("plegd status: %w: %s", err, out)
	}
	if doc.Facts.Evidence == nil {
		return e, fmt.Errorf("plegd status has no evidence: %s", out)
	}
	err = json.Unmarshal(*doc.Facts.Evidence, &e)
	return e, err
}

func (p *privileges) awaitSource(t *testing.T, name string, up bool) {
	t.Helper()
	err := within(20*time.Second, func() error {
		e, err := p.evidence()
		if err != nil {
			return err
		}
		if s, ok := e.Sources[name]; !ok || s.Up != up {
			return fmt.Errorf("it is there %t, and %+v; all: %+v", ok, s, e.Sources)
		}
		return nil
	})
	if err != nil {
		t.Errorf("the source %s is to be up %t: %v", name, up, err)
	}
}

func (p *privileges) awaitListening(t *testing.T, want bool) {
	t.Helper()
	err := within(10*time.Second, func() error {
		e, err := p.evidence()
		if err != nil {
			return err
		}
		if got := e.Queue != nil && e.Queue.Listening; got != want {
			return fmt.Errorf("it is seen: %t, %+v", got, e.Sources["queue"])
		}
		return nil
	})
	if err != nil {
		t.Errorf("the runtime's listener is to be seen %t: %v", want, err)
	}
}
