package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/test/must"
)

// TestWeatherOfServers: a busy port and a control socket that cannot be made
// keep nothing from starting, and are exported as sources that fail.
func TestWeatherOfServers(t *testing.T) {
	dir := t.TempDir()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer func() { _ = busy.Close() }()
	blocker := filepath.Join(dir, "run")
	must.Do(t, os.WriteFile(blocker, nil, 0o600))
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.RuntimeEndpoint = filepath.Join(dir, "runtime.sock")
	cfg.ControlSocket = filepath.Join(blocker, "plegd", "plegd.sock")
	cfg.WebListenAddresses, cfg.KubeletHealthzURL = []string{busy.Addr().String()}, ""
	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	must.Do(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	for _, ready := range d.readies {
		<-ready
	}
	for tried := time.Now(); d.Published().At.Before(tried); { // judged again since
		time.Sleep(time.Millisecond)
	}
	for _, name := range []string{"web", "control"} {
		if s, ok := d.Snapshot(time.Now()).Facts.Evidence.Sources[name]; !ok || s.Up || s.Err == "" {
			t.Errorf("%s cannot be served, and is shown as %+v, %v", name, s, ok)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
