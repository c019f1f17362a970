//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// The states of a verdict.
const (
	healthy   = string(facts.StateHealthy)
	degraded  = string(facts.StateDegraded)
	unhealthy = string(facts.StateUnhealthy)
)

const (
	// calm is how long all must stay well after a fault: longer than the time between
	// two calls of Status.
	calm = 5500 * time.Millisecond
	// recovery is the time from the end of a fault to a healthy verdict: the primary
	// reason is held for 3 s, and a relist period passes on a busy machine.
	recovery = 5 * time.Second
)

// machine are the reasons about the machine that the tests run on.
var machine = []string{health.NodePressure}

// well reports whether nothing is wrong with the runtime.
func well(s lab.Status) bool {
	return s.State == healthy || s.State == degraded && slices.Contains(machine, s.Reason)
}

// subject is a runtime, and a plegd that watches it and is watched.
type subject struct {
	runtime *runtime.Containerd
	plegd   *lab.Plegd
	watch   *lab.Watch
}

// newSubject starts a containerd with three pods and a plegd that is healthy.
func newSubject(t *testing.T) *subject {
	t.Helper()
	runtime := runtime.NewContainerd(t, runtime.ContainerdOptions{})
	runtime.CRI(t).RunPods(3, 1)
	return watched(t, runtime)
}

// watched starts a plegd on a runtime and waits until it is healthy.
func watched(t *testing.T, runtime *runtime.Containerd) *subject {
	t.Helper()
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(30*time.Second, healthy)
	plegd.AwaitRelists(30*time.Second, 2) // the first one inspects every pod
	return &subject{runtime: runtime, plegd: plegd, watch: lab.NewWatch(t, plegd)}
}

// recovers waits until all is well, and checks that it stays so.
func (s *subject) recovers(t *testing.T, from time.Time, limit time.Duration) {
	t.Helper()
	took, err := s.watch.Calm(from, limit, calm)
	lab.Must(t, err)
	lab.Report(t, "%s: healthy %s after the end of the fault", t.Name(), seconds(took))
}

// onlyNamed checks the primary reasons since a moment.
func (s *subject) onlyNamed(t *testing.T, since time.Time, allowed ...string) {
	t.Helper()
	for _, reason := range lab.Reasons(s.watch.Sights(since)) {
		if !slices.Contains(append(allowed, machine...), reason) {
			t.Errorf("%s was the primary reason: %s", reason, lab.Story(s.watch.Sights(since), since))
		}
	}
}

func (s *subject) healthzIs(t *testing.T, want int, part string) {
	t.Helper()
	code, body, err := s.plegd.Get("/healthz")
	if err != nil || code != want || !strings.Contains(body, part) {
		t.Errorf("/healthz: %d %q %v, want %d with %q", code, body, err, want, part)
	}
}

func (s *subject) checkMetrics(t *testing.T, want map[string]float64) {
	t.Helper()
	m := s.plegd.MustMetrics()
	for name, value := range want {
		if got, ok := m.Value(name); !ok || got != value {
			t.Errorf("%s is %v (exists: %t), want %v", name, got, ok, value)
		}
	}
}

// seconds prints a duration for a report.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
