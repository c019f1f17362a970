//go:build e2e

package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestNoEvents: containerd 1.6 has no events. That is said once, and plegd goes
// on without.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	c := lab.NewContainerd(t, lab.ContainerdOptions{})
	for _, mode := range []string{"hint", "evented"} {
		p := lab.NewPlegd(t, c.Socket, lab.PlegdOptions{Flags: []string{"--events=" + mode}})
		awaitPhase(t, p, "unsupported")
		p.AwaitState(20*time.Second, "healthy")
		// It is asked again every 10 s.
		p.AwaitRelists(time.Minute, 12)
		if lines := said(p, 0); len(lines) != 1 || !strings.Contains(lines[0], "Unimplemented") && !strings.Contains(lines[0], "no event stream") {
			t.Errorf("--events=%s: said %q, want one line that says why", mode, lines)
		}
		if v := metric(t, p, "pleg_relist_period_seconds"); v != 1 {
			t.Errorf("--events=%s: the period is %v s without events, want 1", mode, v)
		}
		p.Stop()
	}
}

// TestSharedEvents: on containerd 1.7 plegd would take the kubelet's events. It
// does not listen, says why, and another subscriber gets every event.
func TestSharedEvents(t *testing.T) {
	t.Parallel()
	c := lab.NewContainerd(t, lab.ContainerdOptions{Version: lab.Containerd17})
	other := lab.NewSubscriber(t, c.Socket)
	p := lab.NewPlegd(t, c.Socket, lab.PlegdOptions{Flags: []string{"--events=evented"}})
	awaitPhase(t, p, "refused")
	p.AwaitState(20*time.Second, "healthy")
	pods := c.CRI(t).RunPods(3, 0)
	want := map[string][]string{}
	for _, pod := range pods {
		for range 10 {
			made := pod.RunContainer("app", "--after=20ms")
			want[made.ID] = []string{"CREATED", "STARTED", "STOPPED", "DELETED"}
			awaitExit(t, made)
			made.Remove()
		}
	}
	lab.Eventually(t, 20*time.Second, "the other subscriber has every event", func() error {
		return lacks(other.Events(), want)
	})
	if lines := said(p, 0); len(lines) != 1 || !strings.Contains(lines[0], "only one of its subscribers") {
		t.Errorf("said %q, want one line that says why", lines)
	}
	if n := metric(t, p, "pleg_evented_connection_success_total"); n != 0 {
		t.Errorf("%v streams were opened", n)
	}
}

// lacks says what of the events wanted, by id, are not there.
func lacks(events []lab.RuntimeEvent, want map[string][]string) error {
	got := byID(events)
	for id, types := range want {
		if g := strings.Join(got[id], " "); g != strings.Join(types, " ") {
			return fmt.Errorf("%s: %s, want %s", id, g, strings.Join(types, " "))
		}
	}
	return nil
}

func byID(events []lab.RuntimeEvent) map[string][]string {
	types := map[string][]string{}
	for _, e := range events {
		types[e.ID] = append(types[e.ID], e.Type)
	}
	return types
}

func awaitExit(t *testing.T, c *lab.Container) (at time.Time) {
	t.Helper()
	lab.Eventually(t, 20*time.Second, "the container exits", func() error {
		if at = c.FinishedAt(); at.IsZero() {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	return at
}
