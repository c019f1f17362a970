// Package check compares values in tests. A difference fails the test, which continues.
package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal reports whether got equals want.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) bool {
	t.Helper()
	if got == want {
		return true
	}
	t.Errorf("%s: got %s, want %s", fmt.Sprintf(format, args...), text(got), text(want))
	return false
}

// Contains reports whether got contains part.
func Contains(t testing.TB, got, part, format string, args ...any) bool {
	t.Helper()
	if strings.Contains(got, part) {
		return true
	}
	t.Errorf("%s: %q is not in %s", fmt.Sprintf(format, args...), part, text(got))
	return false
}

// Same compares values that == cannot compare.
func Same(t testing.TB, got, want any, what string, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// NoError reports whether err is nil.
func NoError(t testing.TB, err error, format string, args ...any) bool {
	t.Helper()
	if err == nil {
		return true
	}
	t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	return false
}

// text renders a value; several lines stay readable.
func text(v any) string {
	s, isString := v.(string)
	if !isString {
		return fmt.Sprintf("%+v", v)
	}
	if strings.Contains(s, "\n") {
		return "\n" + s
	}
	return fmt.Sprintf("%q", s)
}
