package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestWatch: the status is printed each second, and an error does not end it.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		shown := 0
		err := watch(ctx, &out, false, func() (int, error) {
			shown++
			switch shown {
			case 2:
				return 0, errors.New("asking plegd: connection refused")
			case 3:
				cancel()
			}
			return io.WriteString(&out, "HEALTHY\n")
		})
		must.Do(t, err)
		want := "--- 2000-01-01T00:00:00Z\nHEALTHY\n--- 2000-01-01T00:00:01Z\nasking plegd: connection refused\n--- 2000-01-01T00:00:02Z\nHEALTHY\n"
		check.Equal(t, out.String(), want, "output")
	})
}
