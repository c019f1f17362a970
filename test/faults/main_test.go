//go:build e2e

package faults

import (
	"os"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) {
	code := lab.Main(m)
	printTable()
	os.Exit(code)
}
