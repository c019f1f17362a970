//go:build e2e

package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// newCRIOProgram prepares a real CRI-O, whose program PLEGD_E2E_CRIO names; pinns
// lies beside it. conmon, runc and podman, which puts the pause image into its
// storage, are Debian's. It is used as a containerd is, and has no shims but a
// conmon for each container.
func newCRIOProgram(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "runc", "conmon", "podman", "prlimit")
	program := os.Getenv(crioProgramEnv)
	if program == "" {
		lab.Unable(t, crioProgramEnv+" names no crio")
	}
	dir := lab.Dir(t)
	c := &Containerd{
		Socket:    filepath.Join(dir, "crio.sock"),
		Log:       filepath.Join(dir, "crio.log"),
		CNIConfig: filepath.Join(dir, "cni", "lab.conflist"),
		monitor:   "conmon",
	}
	c.setProcess(t, "crio")
	c.Env = append(c.Env, "CONTAINERS_REGISTRIES_CONF="+filepath.Join(dir, "registries.conf"))
	config := filepath.Join(dir, "config.toml")
	c.Argv = []string{program, "--config", config, "--config-dir", ""}
	c.limitFiles(options.OpenFiles)
	for _, sub := range []string{"root", "state", "cni", "log", "hooks"} {
		lab.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	wrapper := filepath.Join(dir, "runc")
	settings := fmt.Sprintf(crioTOML, dir, c.Socket, PauseImage, lab.LookPath(t, "conmon"), filepath.Join(filepath.Dir(program), "pinns"), wrapper)
	for path, text := range map[string]string{
		config:                                settings,
		filepath.Join(dir, "policy.json"):     `{"default":[{"type":"insecureAcceptAnything"}]}`,
		filepath.Join(dir, "registries.conf"): "unqualified-search-registries = []\nshort-name-mode = \"disabled\"\n",
		filepath.Join(dir, "cni", "loopback"): FakePlugin,
		wrapper:                               fmt.Sprintf(runcWrapper, lab.LookPath(t, "runc")),
	} {
		lab.Must(t, os.WriteFile(path, []byte(text), 0o755))
	}
	c.WriteCNIConfig()
	// podman, CRI-O and CNI write below /etc and /var/lib with every configuration.
	c.Namespace = lab.NewNamespace(t, lab.NamespaceConfig{
		Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state"), "/var/lib"}, Overlay: []string{"/etc"},
	})
	c.importImage = func() { c.loadIntoStorage(dir) }
	c.importImage() // it has no other way to a pause image
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// loadIntoStorage puts the pause image into CRI-O's storage.
func (c *Containerd) loadIntoStorage(dir string) {
	c.TB.Helper()
	log := filepath.Join(dir, "podman.log")
	_, end, err := c.Namespace.Launch(lab.NamespaceCommand{Env: c.Env, Log: log, Argv: []string{
		lab.LookPath(c.TB, "podman"), "--root", filepath.Join(dir, "root"), "--runroot", crioRunRoot, "--storage-driver", "overlay",
		"--cgroup-manager", "cgroupfs", "--events-backend", "file", "load", "--quiet", "--input", ImageTar(c.TB),
	}})
	if err != nil {
		c.TB.Fatalf("start podman: %v\n%s", err, lab.Tail(log, 20))
	}
	select {
	case <-end.Done:
	case <-time.After(time.Minute):
		c.TB.Fatalf("podman does not end\n%s", lab.Tail(log, 20))
	}
	if end.Status.ExitStatus() != 0 {
		c.TB.Fatalf("podman load: %s\n%s", lab.DescribeExit(end.Status), lab.Tail(log, 20))
	}
}

// crioRunRoot is in the namespace's own /run. podman takes 50 characters at most.
const crioRunRoot = "/run/lab-storage"

// crioTOML keeps everything of CRI-O's in the test's directory.
const crioTOML = `[crio]
root = "%[1]s/root"
runroot = "` + crioRunRoot + `"
storage_driver = "overlay"
log_dir = "%[1]s/log"
version_file = "%[1]s/state/version"
clean_shutdown_file = "%[1]s/state/clean.shutdown"
[crio.api]
listen = "%[2]s"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "lab"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "%[5]s"
namespaces_dir = "%[1]s/state/ns"
container_exits_dir = "/var/run/crio/exits"
container_attach_socket_dir = "%[1]s/state/attach"
hooks_dir = ["%[1]s/hooks"]
apparmor_profile = "unconfined"
seccomp_profile = ""
selinux = false
irqbalance_config_file = "%[1]s/state/irqbalance"
irqbalance_config_restore_file = "disable"
log_level = "info"
[crio.runtime.runtimes.lab]
runtime_path = "%[6]s"
runtime_type = "oci"
runtime_root = "%[1]s/state/runc"
monitor_path = "%[4]s"
monitor_cgroup = "pod"
[crio.image]
pause_image = "%[3]s"
signature_policy = "%[1]s/policy.json"
signature_policy_dir = "%[1]s/policies"
[crio.network]
network_dir = "%[1]s/cni"
plugin_dirs = ["%[1]s/cni"]
[crio.nri]
enable_nri = false
`

// FakePlugin is a network plugin that makes no network. CRI-O asks it for its
// versions before it calls the network ready.
const FakePlugin = `#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}'
else
  echo '{"cniVersion": "0.3.1", "interfaces": [], "ips": []}'
fi
`

// runcWrapper is runc without a negative oom_score_adj, which root without
// CAP_SYS_RESOURCE, as in many CI machines, may not set.
const runcWrapper = `#!/bin/sh
prev= bundle=. create=
for a in "$@"; do
  case $prev in --bundle | -b) bundle=$a ;; esac
  case $a in
  --bundle=*) bundle=${a#--bundle=} ;;
  create | run | restore) create=1 ;;
  esac
  prev=$a
done
[ -z "$create" ] || [ ! -f "$bundle/config.json" ] ||
  sed -i 's/"oomScoreAdj": *-[0-9][0-9]*/"oomScoreAdj":0/' "$bundle/config.json"
exec %s "$@"
`

// isMonitorOf reports whether a command line is that of a pod's shim, or of the
// conmon of one of its containers, whose name holds the pod's.
func (c *Containerd) isMonitorOf(p *Pod, cmdline string) bool {
	program, _, _ := strings.Cut(cmdline, "\x00")
	if c.monitor == "conmon" {
		return filepath.Base(program) == "conmon" && strings.Contains(cmdline, "_"+p.Name+"_")
	}
	return strings.Contains(program, "containerd-shim") && strings.Contains(cmdline, "-id\x00"+p.ID+"\x00")
}
