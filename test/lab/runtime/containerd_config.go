//go:build e2e

package runtime

import (
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
const containerdConfig1 = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[2]s"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[3]s"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "%[1]s/cni"
  conf_dir = "%[1]s/cni"
`

// containerdConfig2 is for containerd 2.x. Its NRI socket would be at a path of
// the machine's.
const containerdConfig2 = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[2]s"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "0"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "%[3]s"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["%[1]s/cni"]
  conf_dir = "%[1]s/cni"
`
