package family

import (
	"os"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

func TestEndsSoon(t *testing.T) {
	const old, young = 1000, 5000
	runtime, shim := proc.Process{Comm: "containerd", Start: old}, proc.Process{Comm: "containerd-shim", Start: old}
	for name, tt := range map[string]struct {
		comm   string
		start  uint64
		parent proc.Process
		args   []string
		want   bool
	}{
		"runc":                        {"runc", young, shim, []string{"runc", "create", "id"}, true},
		"runc, arguments not known":   {"runc", young, runtime, nil, true},
		"somebody uses exec":          {"runc", young, runtime, []string{"runc", "exec", "id"}, false},
		"exec of a shim's":            {"runc", young, shim, []string{"runc", "exec", "--process", "p", "--detach", "id"}, true},
		"exec of a conmon's":          {"crun", young, proc.Process{Comm: "conmon"}, []string{"crun", "exec", "--pid-file", "f", "--detach", "id"}, true},
		"exec by another OCI runtime": {"nvidia-containe", young, runtime, []string{"nvidia-container-runtime", "exec", "id"}, false},
		"another OCI runtime":         {"nvidia-containe", old, shim, []string{"nvidia-container-runtime", "create", "id"}, true},
		"a CNI plugin":                {"bridge", young, runtime, []string{"/opt/cni/bin/bridge"}, true},
		"a plugin that has exec'ed":   {"sleep", young, runtime, []string{"sleep", "1000"}, true},
		"pinns":                       {"pinns", young, runtime, []string{"/usr/bin/pinns", "-d", "/var/run"}, true},
		"a hook of runc's":            {"sh", young, shim, []string{"sh", "-c", "hook"}, true},
		"a shim's logger":             {"logger", old + 5, shim, []string{"/usr/bin/logger"}, false},
		"a shim":                      {"containerd-shim", young, runtime, nil, false},
		"a shim that is started":      {"containerd-shim", young, runtime, []string{"containerd-shim-runc-v2", "-id", "x", "start"}, true},
		"the cleanup after a shim":    {"containerd-shim", young, shim, []string{"containerd-shim-runc-v2", "-id", "x", "delete"}, true},
		"a child without a program":   {"containerd", young, runtime, []string{"containerd"}, true},
		"a container yet to start":    {"runc:[2:INIT]", young, shim, nil, false},
		"a decompressor":              {"unpigz", young, runtime, []string{"unpigz", "-d", "-c"}, false},
		"an NRI plugin":               {"10-topology", young, runtime, []string{"/opt/nri/plugins/10-topology"}, false},
		"dockerd's containerd":        {"containerd", young, proc.Process{Comm: "dockerd"}, nil, false},
	} {
		check.Equal(t, endsSoon(proc.Process{Comm: tt.comm, Start: tt.start}, tt.parent, tt.args), tt.want, "%s", name)
	}
	waits := proc.Process{Comm: "containerd-shim", State: 'D', Start: old}
	if !endsSoon(waits, shim, nil) || endsSoon(waits, runtime, nil) {
		t.Error("a shim's child that cannot begin its program is a helper, a shim of the runtime is none")
	}
}

// TestLasts: a child that may run for long differs from one that is never a helper.
func TestLasts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: not root")
	}
	table := proc.NewTable("/proc")
	p, err := table.Alive(os.Getpid())
	must.Do(t, err)
	for name, tt := range map[string]struct {
		comm, owner string
		want        bool
	}{
		"a decompressor":       {"unpigz", "containerd", true},
		"a network plugin":     {"bridge", "containerd", false},
		"a daemon":             {"containerd", "dockerd", false},
		"a shim":               {"containerd-shim", "containerd", false},
		"a logger of a shim's": {"logger", "containerd-shim", false},
	} {
		owner := p
		owner.Comm = tt.owner
		child := p
		child.Comm = tt.comm
		check.Equal(t, NewMembers(table).Helper(t.Context(), child, child, owner).Lasts, tt.want, "%s", name)
	}
}

// TestRuntime: a runtime is root's, and proved by its executable.
func TestRuntime(t *testing.T) {
	denied := &proc.ReadError{Path: "x", Outcome: proc.Denied}
	for name, tt := range map[string]struct {
		change  func(p *proc.Identity)
		refused string
	}{
		"a runtime":              {func(*proc.Identity) {}, ""},
		"upgraded while it runs": {func(p *proc.Identity) { p.Exe += " (deleted)" }, ""},
		"a wrapper script":       {func(p *proc.Identity) { p.Exe = "/usr/bin/dash" }, "/usr/bin/dash"},
		"another user":           {func(p *proc.Identity) { p.UIDs[2] = 7 }, "uid 7"},
		"not shown":              {func(p *proc.Identity) { p.Unread[proc.ProofExe] = denied }, "denied"},
	} {
		p := identity("containerd", "/usr/bin/containerd")
		tt.change(&p)
		program, answer := Runtime(p)
		if answer.Proven() != (program == "containerd") || answer.Proven() != (tt.refused == "") {
			t.Errorf("%s: %q, %+v", name, program, answer)
		}
		check.Contains(t, answer.Refused, tt.refused, "%s", name)
	}
}

func FuzzShimID(f *testing.F) {
	f.Add("containerd-shim", "shim\x00-namespace\x00k8s.io\x00-id\x000a1b")
	f.Add("containerd-shim", "shim\x00--id=0a1b")
	f.Add("containerd-shim", "shim\x00-id")
	f.Add("conmon", "conmon\x00-c\x00f00d\x00-n\x00k8s_POD_a_b_c_0")
	f.Add("conmon", "conmon\x00-c\x00\n\x1b[31m\x00-n\x00k8s_POD_")
	f.Add("", "\x00\x00-\x00--")
	f.Fuzz(func(t *testing.T, comm, line string) {
		id := ShimID(proc.Process{Comm: comm}, proc.SplitArgs([]byte(line)))
		if strings.Trim(id, idChars) != "" || len(id) > 128 || !strings.Contains(line, id) {
			t.Errorf("%q of %q", id, line)
		}
	})
}
