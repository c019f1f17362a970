//go:build e2e

package events

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// awaitCaughtUp waits until the relist that plegd makes when a stream holds has
// been made.
func awaitCaughtUp(t *testing.T, p *lab.Plegd) {
	t.Helper()
	attempts := func() (uint64, error) {
		s, err := p.Status()
		if err == nil && s.Relist.InFlight != nil {
			err = errors.New("a relist is under way")
		}
		return s.Relist.Attempts, err
	}
	var last uint64
	since := time.Now()
	lab.Eventually(t, time.Minute, "no relist is made for 5 s", func() error {
		n, err := attempts()
		if n != last || err != nil {
			last, since = n, time.Now()
		}
		if time.Since(since) < 5*time.Second {
			return fmt.Errorf("relist %d was %s ago", last, time.Since(since))
		}
		return err
	})
}
