//go:build e2e

package lab

import (
	"os"
	"sync/atomic"
	"testing"
)

// mainCalled reports whether this test binary can be started again as a namespace's first process.
var mainCalled atomic.Bool

// roles are what a test binary that Again has started does, by the variable of the
// environment that holds its configuration.
var roles = map[string]func() int{nsInitEnv: nsInitMain, impostorEnv: impostorMain}

// AddRole adds a role, when a package is initialized. It returns true.
func AddRole(variable string, run func() int) bool {
	roles[variable] = run
	return true
}

// Main runs the tests, prints the measured values, and returns the exit status for os.Exit. In a process that the lab
// has started as the first one of a containerd's namespaces it does that process's work instead.
func Main(m *testing.M) int {
	for variable, run := range roles {
		if os.Getenv(variable) != "" {
			return run()
		}
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
