//go:build e2e

package lab

import (
	"os"
	"sync/atomic"
	"testing"
)

// mainCalled reports whether this test binary can be started again as a
// namespace's first process.
var mainCalled atomic.Bool

// Main runs the tests, prints the measured values, and returns the exit status for
// os.Exit. In a process that the lab has started as the first one of a containerd's
// namespaces it does that process's work instead.
func Main(m *testing.M) int {
	if os.Getenv(nsInitEnv) != "" {
		return nsInitMain()
	}
	if os.Getenv(systemdInitEnv) != "" {
		return systemdInitMain()
	}
	if os.Getenv(impostorEnv) != "" {
		return impostorMain()
	}
	mainCalled.Store(true)
	sweepCgroups()
	code := m.Run()
	if dir, err := runDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	printReport()
	return code
}
