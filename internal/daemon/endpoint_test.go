package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestNoReasonBeforeTheSearch: that no socket is known means nothing before the
// first search has ended.
func TestNoReasonBeforeTheSearch(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.ControlSocket, cfg.WebListenAddresses, cfg.KubeletHealthzURL = "", nil, ""
	cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if v := d.Snapshot(time.Now()).Verdict; v.State != health.StateStarting || v.Reason != health.Starting {
		t.Errorf("%s, %s before the first search", v.State, v.Reason)
	}
}

// TestDiscoveredEndpoint: the first relist waits for the search, and no verdict
// on the way names a reason.
func TestDiscoveredEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		w := watchLogged(t, fakeRuntime(2, 1), func(c *Config) {
			c.RuntimeEndpoint = ""
			dir := filepath.Join(c.ProcFS, "7")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"stat": evidencetest.StatLine(7, "kubelet", 'S', 1, 1), "cmdline": "kubelet\x00--container-runtime-endpoint=/run/fake.sock\x00"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
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
		w.d.take(&kubelet.Found{Path: "/run/guess.sock", Source: "a usual place", Serves: true})
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
