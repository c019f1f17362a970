package daemon

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// TestDiscoveredEndpoint: the first relist waits for the search, and no verdict
// on the way names a reason.
func TestDiscoveredEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		w := watchLogged(t, fakeRuntime(2, 1), func(c *Config) {
			c.RuntimeEndpoint = ""
			kubeletStarts(t, c.ProcFS, 7, "--container-runtime-endpoint=/run/fake.sock")
		}, zap.New(core))
		w.expect(300*time.Millisecond, well)
		for _, e := range logs.FilterMessageSnippet("verdict changed").All() {
			if reason := e.ContextMap()["reason"]; reason != "" && reason != health.Starting {
				t.Errorf("%v was the reason on the way", reason)
			}
		}
	})
}

// TestGuessedEndpoint: a socket that was only guessed is watched until the kubelet, which
// starts later, names another one.
func TestGuessedEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		procFS := ""
		w := watchLogged(t, fakeRuntime(1, 1), func(c *Config) { c.RuntimeEndpoint, procFS = "", c.ProcFS }, zap.NewNop())
		time.Sleep(time.Second)
		w.d.take(&kubelet.Found{Endpoint: facts.Endpoint{Path: "/run/guess.sock", Source: "a usual place"}, Serves: true})
		time.Sleep(time.Minute)
		if path := w.d.path(); path != "/run/guess.sock" {
			t.Errorf("without a kubelet %q is watched", path)
		}
		kubeletStarts(t, procFS, 100, "--container-runtime-endpoint=/run/fake.sock")
		time.Sleep(2 * findAgain)
		if path := w.d.path(); path != "/run/fake.sock" {
			t.Errorf("beside a kubelet that names /run/fake.sock %q is watched", path)
		}
	})
}
