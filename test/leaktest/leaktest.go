// Package leaktest finds goroutines that the tests of a package leave behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Check runs the tests of a package, which fails if a goroutine is left after them. Each has a
// minute to end: goleak's own half a second is too short on a loaded machine.
func Check(m *testing.M) {
	code := m.Run()
	left := goleak.Find()
	for deadline := time.Now().Add(time.Minute); left != nil && time.Now().Before(deadline); {
		left = goleak.Find()
	}
	if left != nil && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}
