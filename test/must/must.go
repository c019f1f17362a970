// Package must ends a test at an error or at a wrong value.
package must

import (
	"testing"

	"github.com/plegd/plegd/test/check"
)

// Do ends the test at an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal ends the test unless got equals want.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if !check.Equal(t, got, want, format, args...) {
		t.FailNow()
	}
}
