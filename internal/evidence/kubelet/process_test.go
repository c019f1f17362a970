package kubelet

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestProcess: only the kubelet of this node counts, in each distribution.
func TestProcess(t *testing.T) {
	const endpoint = "/run/containerd/containerd.sock"
	for _, tt := range []struct {
		name, comm, netns, cgroup string
		args                      []string
		found                     bool
		doubt                     string // in the error; "" for ErrNone
	}{
		{"kubelet", "kubelet", "net:[1]", "0::/system.slice/kubelet.service\n", []string{"kubelet", "--container-runtime-endpoint=" + endpoint}, true, ""},
		{"of kind, in a network namespace of its own", "kubelet", "net:[2]", "0::/system.slice/docker-1.scope\n", []string{"kubelet", "--container-runtime-endpoint=" + endpoint}, false, ""},
		{"a pod's", "kubelet", "net:[1]", "0::/kubepods.slice/x\n", []string{"kubelet"}, false, "is a container's"},
		{"a pod's, by v1", "kubelet", "net:[1]", "9:memory:/kubepods/besteffort/pod1/2\n", []string{"kubelet"}, false, "is a container's"},
		{"of another runtime", "kubelet", "net:[1]", "0::/\n", []string{"kubelet", "--container-runtime-endpoint=/run/crio/crio.sock"}, false, ""},
		{"k3s", "k3s-server", "net:[1]", "0::/\n", []string{"k3s", "server", "--container-runtime-endpoint", endpoint}, true, ""},
		{"k3s beside another containerd", "k3s-agent", "net:[1]", "0::/\n", []string{"k3s", "agent"}, false, ""},
		{"microk8s", "kubelite", "net:[1]", "0::/\n", []string{"kubelite"}, true, ""},
		{"in a namespace that cannot be read", "kubelet", "", "0::/\n", []string{"kubelet", "--container-runtime-endpoint=" + endpoint}, true, ""},
		{"a pod's, likewise", "kubelet", "", "0::/kubepods.slice/x\n", []string{"kubelet"}, false, "is a container's"},
		{"no kubelet", "bash", "net:[1]", "0::/\n", []string{"bash"}, false, ""},
	} {
		root := t.TempDir()
		write := func(pid int, comm, netns, cgroup string, args []string) {
			dir := strconv.Itoa(pid)
			line := ""
			for _, a := range args {
				line += a + "\x00"
			}
			evidencetest.WriteTree(t, root, map[string]string{
				dir + "/stat": evidencetest.StatLine(pid, comm, 'S', 1, 100), dir + "/cgroup": cgroup, dir + "/cmdline": line, dir + "/ns/x": "",
				dir + "/status": rootStatus,
			})
			if netns == "" {
				evidencetest.WriteTree(t, root, map[string]string{dir + "/ns/net": "no link"})
				return
			}
			must.Do(t, os.Symlink(netns, root+"/"+dir+"/ns/net"))
		}
		write(1, "systemd", "net:[1]", "0::/\n", nil)
		write(5, "containerd", "net:[1]", "0::/\n", nil)
		write(9, tt.comm, tt.netns, tt.cgroup, tt.args)
		for _, runtime := range []int{0, 5} {
			k := &Process{ProcFS: root, Table: proc.NewTable(root), Pinned: true, Endpoint: func() string { return endpoint }, Runtime: func() int { return runtime }}
			v, err := k.Sample(t.Context())
			doubted := tt.doubt != "" && err != nil && strings.Contains(err.Error(), tt.doubt)
			if tt.found != (err == nil && v.PID == 9) || !tt.found && !doubted && !errors.Is(err, ErrNone) {
				t.Errorf("%s, runtime %d: %+v, %v", tt.name, runtime, v, err)
			}
			unread := k.Unread()["network namespace"]
			check.Equal(t, unread != "", tt.netns == "", "%s, runtime %d: network namespace %q", tt.name, runtime, unread)
			service := ""
			if tt.cgroup == "0::/system.slice/kubelet.service\n" {
				service = "kubelet"
			}
			check.Equal(t, k.Unit(), service, "%s, runtime %d: unit", tt.name, runtime)
		}
	}
}

// TestImpostorHidesNoEnd: the kubelet has ended, and another user's process of its name does not hide that. One whose
// user cannot be read may be the kubelet.
func TestImpostorHidesNoEnd(t *testing.T) {
	root := t.TempDir()
	write := func(pid int, comm, status string) {
		dir := strconv.Itoa(pid)
		evidencetest.WriteTree(t, root, map[string]string{
			dir + "/stat": evidencetest.StatLine(pid, comm, 'S', 1, 100), dir + "/cgroup": "0::/\n", dir + "/cmdline": comm + "\x00", dir + "/status": status,
		})
	}
	write(1, "systemd", rootStatus)
	write(9, "kubelet", rootStatus)
	k := &Process{ProcFS: root, Table: proc.NewTable(root), Endpoint: func() string { return "" }, Runtime: func() int { return 0 }}
	v, err := k.Sample(t.Context())
	must.Do(t, err)
	check.Equal(t, v.PID, 9, "the kubelet")
	must.Do(t, os.RemoveAll(root+"/9"))
	write(10, "kubelet", "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t10\n")
	_, err = k.Sample(t.Context())
	check.Equal(t, errors.Is(err, ErrNone), true, "beside another user's process: %v", err)
	must.Do(t, os.RemoveAll(root+"/10"))
	write(11, "kubelet", "no user\n")
	k.Table = proc.NewTable(root) // not the one of before
	_, err = k.Sample(t.Context())
	check.Equal(t, err != nil && !errors.Is(err, ErrNone), true, "beside one whose user cannot be read: %v", err)
}

// TestK3sArguments: the kubelet's arguments within those of k3s.
func TestK3sArguments(t *testing.T) {
	got := k3sArguments([]string{"k3s", "server", "--kubelet-arg=node-status-update-frequency=4s", "--kubelet-arg", "v=2"})
	want := []string{"k3s", "--container-runtime-endpoint=" + k3sEndpoint, "--config-dir=" + k3sDropIns, "--kubeconfig=" + k3sKubeconfig, "--node-status-update-frequency=4s", "--v=2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestSameSocket: two spellings of one socket are one, and a kubelet without a pinned socket
// decides.
func TestSameSocket(t *testing.T) {
	dir := t.TempDir()
	evidencetest.ListenAt(t, dir+"/a.sock", 1)
	evidencetest.ListenAt(t, dir+"/b.sock", 1)
	must.Do(t, os.Symlink(dir, dir+"/link"))
	for _, tt := range []struct {
		endpoint string
		pinned   bool
		kubelets int
		want     bool
	}{
		{dir + "/link/a.sock", true, 2, true},
		{dir + "/b.sock", true, 1, false},
		{dir + "/b.sock", false, 1, true},
		{dir + "/b.sock", false, 2, false},
		{"", false, 2, false},
	} {
		k := &Process{Pinned: tt.pinned, Endpoint: func() string { return dir + "/a.sock" }}
		found := &settings{KubeletProcess: facts.KubeletProcess{Endpoint: tt.endpoint}}
		check.Equal(t, k.watched(t.Context(), found, tt.kubelets), tt.want, "%+v", tt)
	}
}
