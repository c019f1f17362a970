//go:build e2e

package events

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestHint measures how long after a container's exit plegd says ContainerDied,
// with hints and without, for the same containers.
func TestHint(t *testing.T) {
	c := lab.NewContainerd(t, lab.ContainerdOptions{Version: lab.Containerd2})
	pod := c.CRI(t).RunPod()
	plegds := map[string]*lab.Plegd{
		"hint": listen(t, c.Socket, "--events=hint"),
		"off":  lab.NewPlegd(t, c.Socket, lab.PlegdOptions{}),
	}
	told := lab.NewSubscriber(t, c.Socket)
	plegds["off"].AwaitState(20*time.Second, "healthy")
	const exits = 20
	took := map[string][]time.Duration{}
	for range exits {
		made := pod.RunContainer("app", fmt.Sprintf("--after=%s", 300*time.Millisecond+rand.N(time.Second)))
		exit := awaitExit(t, made)
		for mode, p := range plegds {
			died := awaitEvent(t, p, made.ID, "ContainerDied")
			took[mode] = append(took[mode], died.Sub(exit))
			if mode == "hint" {
				took["told"] = append(took["told"], died.Sub(stopped(t, told, made.ID)))
			}
		}
		made.Remove()
	}
	median := func(mode string) time.Duration {
		slices.Sort(took[mode])
		return took[mode][exits/2]
	}
	hint, off := median("hint"), median("off")
	lab.Report(t, "from the runtime's event, as another subscriber has it, to ContainerDied with --events=hint, median of %d: %s", exits, round(median("told")))
	lab.Report(t, "from a container's exit to ContainerDied, median of %d: %s with --events=hint, %s without (most: %s and %s)",
		exits, round(hint), round(off), round(took["hint"][exits-1]), round(took["off"][exits-1]))
	// The goal is a tenth. A machine that is busy takes its time for either, and
	// for telling of the exit in the first place.
	if hint > off*3/4 {
		t.Errorf("hints made it %s in place of %s", hint, off)
	}
}

// stopped is when a subscriber was told that a container has exited.
func stopped(t *testing.T, s *lab.Subscriber, id string) (at time.Time) {
	t.Helper()
	lab.Eventually(t, 20*time.Second, "the subscriber has the event of "+id, func() error {
		for _, e := range s.Events() {
			if e.ID == id && e.Type == "STOPPED" {
				at = e.At
				return nil
			}
		}
		return fmt.Errorf("it is not")
	})
	return at
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// awaitEvent waits until plegd logs an event of a container, and returns when.
func awaitEvent(t *testing.T, p *lab.Plegd, id, kind string) (at time.Time) {
	t.Helper()
	lab.Eventually(t, 20*time.Second, kind+" of "+id, func() error {
		for _, l := range p.Log.Since(0) {
			if l.Message() == "pod lifecycle event" && l.String("container_id") == id && l.String("type") == kind {
				at = l.At
				return nil
			}
		}
		return fmt.Errorf("not logged")
	})
	return at
}
