//go:build e2e

package events

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// listen starts a plegd that uses a runtime's events and waits until it does.
func listen(t *testing.T, socket string, flags ...string) *lab.Plegd {
	t.Helper()
	p := lab.NewPlegd(t, socket, lab.PlegdOptions{Flags: flags})
	awaitPhase(t, p, "streaming")
	return p
}

// said are the log lines about the event stream from the n-th line on, without
// the fields.
func said(p *lab.Plegd, n int) (lines []string) {
	for _, l := range p.Log.Since(n) {
		if l.String("events") != "" {
			lines = append(lines, strings.TrimSpace(l.Message()+" "+l.String("detail")))
		}
	}
	return lines
}

// awaitPhase waits until plegd's status says so of the event stream.
func awaitPhase(t *testing.T, p *lab.Plegd, phase string) {
	t.Helper()
	lab.Eventually(t, 30*time.Second, "the event stream is "+phase, func() error {
		s, err := p.Status()
		if err == nil && s.Events.Phase != phase {
			err = fmt.Errorf("it is %q", s.Events.Phase)
		}
		return err
	})
}

func metric(t *testing.T, p *lab.Plegd, name string, labels ...string) float64 {
	t.Helper()
	v, ok := p.MustMetrics().Value(name, labels...)
	if !ok {
		t.Fatalf("there is no %s %v", name, labels)
	}
	return v
}
