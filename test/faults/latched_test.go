//go:build e2e

package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// TestLatchedNetwork: CRI-O continues to say NetworkReady=true when its CNI
// configuration is gone. By all that the kubelet asks the node is well, and plegd
// says so; NetworkNotReady is named when CRI-O says it, after its next start.
func TestLatchedNetwork(t *testing.T) {
	f := fault{start: crio(0)}
	b := newBench(t, &f)
	b.watch(&f)
	begun := time.Now()
	e := look(b.plegd)
	t.Cleanup(e.close)
	b.must(os.Remove(b.crio.CNIConfig))
	asked := statuses(b.plegd)
	lab.Eventually(t, time.Minute, "two more Status have ended", func() error {
		if n := statuses(b.plegd); n < asked+2 {
			return fmt.Errorf("%g have", n-asked)
		}
		return nil
	})
	for _, s := range e.since(begun) {
		if s.state != string(health.StateHealthy) && (!s.busy || s.reason != health.NodePressure) {
			t.Errorf("%s/%s (%v) %.1f s after the configuration was gone", s.state, s.reason, s.active, s.at.Sub(begun).Seconds())
		}
	}

	b.crio.Kill()
	b.crio.Launch()
	started := time.Now()
	if _, ok := e.await(started, time.Minute, func(s sight) bool { return s.reason == health.NetworkNotReady }); !ok {
		t.Errorf("started without a configuration: %s", story(e.since(started), started))
	}
	b.must(os.WriteFile(b.crio.CNIConfig, []byte("{}"), 0o600))
	fixed := time.Now()
	if e.awaitCalm(fixed, time.Minute) < 0 {
		t.Errorf("with its configuration again: %s", story(e.since(fixed), fixed))
	}
}

// statuses is how many calls of Status have been made.
func statuses(p *lab.Plegd) float64 {
	n, _ := p.MustMetrics().Value("pleg_runtime_operations_total", "operation_type", "status")
	return n
}
