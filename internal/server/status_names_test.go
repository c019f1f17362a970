package server

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// TestSandboxIDs: an id leads to a pod, and is a name where names may not be
// shown.
func TestSandboxIDs(t *testing.T) {
	s := viewtest.Degraded()
	s.Verdict.Active[1].Evidence = []string{
		"sandbox " + viewtest.SandboxID, "sandbox " + viewtest.SandboxID[:13] + ", stopped", "sandbox " + viewtest.SandboxID[:12],
	}
	s.Facts.Evidence.Sources["children"] = health.Source{Err: "reading the arguments of the shim of " + viewtest.SandboxID}
	s.Facts.Evidence.Process.Lock = &health.LockWait{File: "/var/lib/containers/" + viewtest.SandboxID + "/lock"}
	d := health.NamesIn(&s).Redact(&s)
	b, err := encodeJSON(d)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"json": string(b), "text": textOf(t, d, false), "page": pageOf(t, d)} {
		if strings.Contains(text, viewtest.SandboxID[:12]) {
			t.Errorf("%s holds the id of a sandbox:\n%s", what, text)
		}
	}
	c := d.Facts.Evidence.Children
	if c.Stuck[0].Sandbox != "" || c.Stuck[0].PID != 4711 || c.Stuck[0].Comm != "containerd-shim" {
		t.Errorf("%+v; want its pid and comm alone", c.Stuck[0])
	}
	if got := s.Facts.Evidence.Children.Stuck[0].Sandbox; got != viewtest.SandboxID {
		t.Errorf("with names: sandbox %v", got)
	}
}

// TestStartingForecast: plegd does not know yet what the node's kubelet says.
func TestStartingForecast(t *testing.T) {
	d := new(viewtest.Starting())
	const want = "one that started when plegd did would say: "
	for what, text := range map[string]string{"text": textOf(t, d, false), "page": pageOf(t, d)} {
		if !strings.Contains(text, want) || strings.Contains(text, "this node NotReady") || strings.Contains(text, "Time left") {
			t.Errorf("%s:\n%s", what, text)
		}
	}
}
