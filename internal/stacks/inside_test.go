package stacks

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
)

// callChain is the chain of a call, with a link behind it.
func callChain(operation string) facts.Chain {
	return facts.Chain{Links: []facts.Link{
		{Kind: facts.KindCall, Name: operation, State: facts.LinkUnanswered, Evidence: "unanswered for 9s"},
		{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped},
	}}
}

// TestComplete: the call gets its wait, and the holder comes behind it only where it is proven.
func TestComplete(t *testing.T) {
	for name, tt := range map[string]struct {
		dump, operation string
		evidence        string // a part of the call's
		holder          string // the name of the link behind it, "" for none
	}{
		"a lock":                {"containerd-1.6-list-hangs.txt", "list_containers", "waits for the lock of container.(*statusStorage)", "UpdateContainerResources"},
		"every call":            {"containerd-1.6-list-hangs.txt", facts.EveryCall, "waits for the lock of container.(*statusStorage)", "UpdateContainerResources"},
		"another call":          {"containerd-1.6-list-hangs.txt", "version", "unanswered for 9s", ""},
		"the log":               {"crio-log-pipe.txt", "version", "waits for a lock in logrus.(*Entry).log", "Status"},
		"the holder's own call": {"crio-nri-stopped.txt", "list_containers", "unanswered for 9s", ""},
		"an unknown holder":     {"dockerd-cp.txt", facts.EveryCall, "whose holder is not proven", ""},
	} {
		before := callChain(tt.operation)
		got := Analyse(readDump(t, tt.dump)).complete(before, time.Unix(600, 0))
		holder := ""
		if len(got.Links) == 3 {
			holder = got.Links[1].Name
		}
		if !strings.Contains(got.Links[0].Evidence, tt.evidence) || holder != tt.holder || got.Links[len(got.Links)-1].PID != 4711 {
			t.Errorf("%s: %+v", name, got.Links)
		}
		check.Equal(t, before.Links[0].Evidence, "unanswered for 9s", "%s: the chain of the explorer has changed", name)
	}
}

// TestInsideReadsRarely: a dump is read once in 30 s, for calls that hang, and one of the
// fault before is not used.
func TestInsideReadsRarely(t *testing.T) {
	pid, _ := start(t, "containerd", "debug.sock")
	s := &Inside{Reader: Reader{Table: proc.NewTable("/proc")}}
	targets := []Target{{PID: pid}}
	hung := facts.Symptom{Operation: "list_containers", Since: time.Now().Add(-time.Minute), Called: time.Now().Add(-time.Minute)}
	for name, tt := range map[string]facts.Symptom{
		"young":     {Operation: "list_containers", Since: time.Now(), Called: time.Now()},
		"suspected": {Operation: "list_containers", Since: hung.Since, Called: hung.Called, Suspected: true},
	} {
		s.Complete(t.Context(), callChain("list_containers"), tt, targets)
		if !s.read.IsZero() {
			t.Errorf("%s: a dump was read", name)
		}
	}
	s.Complete(t.Context(), callChain("list_containers"), hung, targets)
	first := s.read
	if s.report == nil || first.IsZero() {
		t.Fatal("no dump was read")
	}
	s.Complete(t.Context(), callChain("list_containers"), hung, targets)
	next := hung
	next.Since = time.Now().Add(-10 * time.Second)
	s.Complete(t.Context(), callChain("list_containers"), next, targets)
	if !s.read.Equal(first) || s.report != nil {
		t.Errorf("within 30 s: read again %v, the report of another fault is kept %v", !s.read.Equal(first), s.report != nil)
	}
}
