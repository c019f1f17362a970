//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	containerdUnit = "containerd.service"
	pauseTar       = "/root/pause.tar"
)

// ContainerdFiles are what the machine's own containerd.service needs to run in a Systemd of the lab's: a
// configuration, and a file system of its own for its layers.
func ContainerdFiles(t testing.TB) []File {
	t.Helper()
	lab.RequirePrograms(t, "containerd", "containerd-shim-runc-v2", "ctr", "runc")
	config := fmt.Sprintf(`version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_port = "0"
`, runtime.PauseImage)
	return []File{
		{Path: "/etc/containerd/config.toml", Text: config},
		{Path: "/etc/cni/net.d/lab.conflist", Text: `{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "loopback"}]}`},
		{Path: "/etc/systemd/system/var-lib-containerd.mount", Text: "[Mount]\nWhat=tmpfs\nWhere=/var/lib/containerd\nType=tmpfs\n"},
		// An overlay cannot be another overlay's upper layer.
		{Path: "/etc/systemd/system/" + containerdUnit + ".d/lab.conf", Text: "[Unit]\nRequiresMountsFor=/var/lib/containerd\n"},
		{Path: pauseTar, From: runtime.ImageTar(t)},
	}
}

// StartContainerd starts the containerd service, waits until it answers, and
// returns a client of it that has the pause image.
func (s *Systemd) StartContainerd() *runtime.CRI {
	s.t.Helper()
	s.Run("systemctl", "start", containerdUnit)
	socket := s.Path(runtime.DefaultSocket)
	lab.Eventually(s.t, lab.StartLimit, "the containerd service answers", func() error { return runtime.VersionAnswers(socket) })
	s.ImportImage(pauseTar)
	return runtime.NewCRI(s.t, socket, "/"+lab.NewCgroupName())
}

// ImportImage imports an image from a tar in systemd's file system.
func (s *Systemd) ImportImage(path string) string {
	s.t.Helper()
	return s.Run("ctr", "--namespace", "k8s.io", "images", "import", path)
}

// Path is how a path in systemd's file system is reached from here.
func (s *Systemd) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", s.pid, path) }

// Signal sends a signal to the main process of a unit.
func (s *Systemd) Signal(unit string, signal syscall.Signal) {
	s.t.Helper()
	s.Run("systemctl", "kill", "--kill-whom=main", fmt.Sprintf("--signal=%d", signal), unit)
}

// CgroupValue returns what a file of a unit's cgroup holds: under v1 in the first hierarchy that has it.
func (s *Systemd) CgroupValue(unit string, files ...string) (string, error) {
	s.t.Helper()
	group := s.Property(unit, "ControlGroup")
	for _, file := range files {
		for _, pattern := range []string{lab.CgroupRoot + group, lab.CgroupRoot + "/*" + group} {
			found, err := filepath.Glob(s.Path(filepath.Join(pattern, file)))
			if err != nil {
				return "", err
			}
			for _, path := range found {
				b, err := os.ReadFile(path)
				return strings.TrimSpace(string(b)), err
			}
		}
	}
	return "", errors.New("no hierarchy has " + strings.Join(files, " or ") + " for " + unit)
}
