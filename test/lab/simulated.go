//go:build e2e

package lab

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// Simulated is a `plegd simulate` that ends with the test.
type Simulated struct {
	Socket string
	PID    int
	t      testing.TB
}

// NewSimulated starts one with more flags, and waits until it serves.
func NewSimulated(t testing.TB, flags ...string) *Simulated {
	t.Helper()
	s := &Simulated{Socket: filepath.Join(Dir(t), "runtime.sock"), t: t}
	s.PID, _ = StartProgram(t, "simulate", append([]string{Binary(t), "simulate", "--socket=" + s.Socket}, flags...)...)
	Eventually(t, 20*time.Second, "plegd simulate serves", func() error {
		_, err := fakeruntime.ReadFailpoints(t.Context(), s.Socket)
		return err
	})
	return s
}

// Fail replaces the failpoints; "" for none.
func (s *Simulated) Fail(spec string) {
	s.t.Helper()
	_, err := fakeruntime.WriteFailpoints(s.t.Context(), s.Socket, spec)
	Must(s.t, err)
}
