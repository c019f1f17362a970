//go:build e2e

package runtime

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

// writeContainerdConfig writes the smallest configuration that runs pods here.
func writeContainerdConfig(t testing.TB, version, dir, config, socket string) {
	t.Helper()
	for _, sub := range []string{"root", "state", "opt", "cni"} {
		lab.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	format := containerdConfig1
	if usesConfigVersion3(version) {
		format = containerdConfig2
	}
	lab.Must(t, os.WriteFile(config, fmt.Appendf(nil, format, dir, socket, PauseImage), 0o644))
}

// containerdConfig1 is for containerd 1.6 and 1.7.
//
//go:embed testdata/containerd-1.toml
var containerdConfig1 string

// containerdConfig2 is for containerd 2.x. Its NRI socket would be at a path of the machine's.
//
//go:embed testdata/containerd-2.toml
var containerdConfig2 string
