//go:build e2e

package lab

import "testing"

// heavy bounds how many tests that keep the machine busy run at once, however
// many run in parallel: a starved runtime looks like a stuck one.
var heavy = make(chan struct{}, 2)

// Heavy takes one of the slots for heavy tests until the test ends.
func Heavy(t testing.TB) {
	t.Helper()
	heavy <- struct{}{}
	t.Cleanup(func() { <-heavy })
}
