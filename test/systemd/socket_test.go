//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestSocketActivation has systemd hold the web port.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	if err := socketActivation(t); err != nil {
		t.Error(err)
	}
}

func socketActivation(t *testing.T) error {
	s := newSystemdWithPlegd(t, install{Settings: "PLEGD_WEB_SYSTEMD_SOCKET=true\n"})
	s.Run("systemctl", "start", plegdSocket)
	// The first scrape starts plegd, and waits for it.
	get := func() error {
		code, _, err := s.Get("/metrics")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d", code)
		}
		return err
	}
	if err := get(); err != nil {
		return fmt.Errorf("the first scrape: %w", err)
	}
	// The scrape may be answered before the first relist, after which plegd is ready.
	err := within(10*time.Second, func() error {
		if state := s.Property(plegdUnit, "ActiveState"); state != "active" {
			return fmt.Errorf("plegd is %s", state)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("after the first scrape: %w", err)
	}
	// Restarts in which no scraper is refused.
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		var errs error
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n < 3 {
					errs = errors.Join(errs, fmt.Errorf("only %d scrapes", n))
				}
				done <- errs
				return
			default:
				// One that was being answered when plegd stopped may be broken off.
				if err := get(); errors.Is(err, syscall.ECONNREFUSED) {
					errs = errors.Join(errs, fmt.Errorf("scrape %d: %w", n, err))
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}()
	for range 3 {
		s.Run("systemctl", "restart", plegdUnit)
	}
	lab.Eventually(t, 10*time.Second, "plegd serves", get)
	close(stop)
	if err := <-done; err != nil {
		return fmt.Errorf("a restart was noticed: %w", err)
	}
	return nil
}
