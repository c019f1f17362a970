//go:build e2e

package cluster

import (
	"os"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
