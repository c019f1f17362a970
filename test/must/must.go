// Package must ends a test at an error.
package must

import "testing"

// Do ends the test at an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
