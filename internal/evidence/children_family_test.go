package evidence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/evidencetest"
)

// cmdline joins arguments as /proc/PID/cmdline has them.
func cmdline(args ...string) string { return strings.Join(args, "\x00") + "\x00" }

// process writes a process that was started 190 s before the fixture's now.
func process(t *testing.T, root string, pid, ppid int, comm string, state byte, args ...string) {
	t.Helper()
	dir := strconv.Itoa(pid)
	stat := evidencetest.StatLine(pid, comm, state, ppid, 1000)
	files := map[string]string{dir + "/stat": stat, dir + "/task/" + dir + "/stat": stat}
	if args != nil {
		files[dir+"/cmdline"] = cmdline(args...)
	}
	evidencetest.WriteTree(t, root, files)
}

func pidsOf(children []facts.Child) []int {
	var out []int
	for _, c := range children {
		out = append(out, c.PID)
	}
	slices.Sort(out)
	return out
}

// TestChildrenFamily: whose shims and helpers they are. A pod may run a runtime
// of its own.
func TestChildrenFamily(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, 0, "systemd", 'S')
	process(t, root, 50, 1, "k3s-server", 'S')
	process(t, root, 100, 50, "containerd", 'S')
	process(t, root, 201, 1, "containerd-shim", 'T', "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "0a1b", "-address", "/run/x.sock")
	process(t, root, 202, 50, "containerd-shim", 'T', "/x/containerd-shim-runc-v2", "--id=abc_d")
	process(t, root, 203, 100, "conmon", 'T', "/usr/bin/conmon", "-b", "/x", "-c", "f00d", "-n", "k8s_POD_a_b_c_0")
	process(t, root, 204, 1, "conmon", 'T', "/usr/bin/conmon", "-c", "beef", "-n", "k8s_app_a_b_c_0")
	process(t, root, 300, 201, "dockerd", 'S')         // a pod's first process
	process(t, root, 301, 300, "containerd-shim", 'T') // of the runtime in that pod
	process(t, root, 302, 201, "containerd-shim", 'T') // a container that is named so
	process(t, root, 400, 100, "runc", 'S')            // no arguments can be read
	process(t, root, 401, 201, "runc", 'S', "runc", "--root", "/run/x", "create", "id")
	process(t, root, 402, 100, "crun", 'S', "crun", "--root", "/run/x", "exec", "id") // somebody is in there
	process(t, root, 403, 300, "runc", 'S', "runc", "create", "id")                   // of the pod's
	process(t, root, 404, 201, "runc:[2:INIT]", 'S')                                  // a container yet to start
	process(t, root, 405, 100, "hang", 'S', "/bin/sh", "/opt/cni/bin/hang")
	process(t, root, 406, 100, "aws-cni", 'S', "/home/bin/aws-cni")
	process(t, root, 407, 100, "bridge", 'D')
	process(t, root, 408, 100, "unpigz", 'S', "unpigz", "-d", "-c")
	process(t, root, 409, 100, "10-topology", 'S', "/opt/nri/plugins/10-topology")
	process(t, root, 410, 201, "bridge", 'S') // a container that is named so
	process(t, root, 411, 100, "runc", 'Z')

	w := childrenOf(root, "testdata/none", 100)
	v := gatherChildren(t, w)
	if got := pidsOf(v.Stuck); v.Shims != 4 || !slices.Equal(got, []int{201, 202, 203, 204}) {
		t.Errorf("%d shims, stuck: %v", v.Shims, got)
	}
	for pid, want := range map[int]string{201: "0a1b", 202: "abc_d", 203: "f00d", 204: "beef"} {
		if c := childPID(v.Stuck, pid); c == nil || c.Sandbox != want {
			t.Errorf("%d: %+v, want sandbox %q", pid, c, want)
		}
	}
	if got := pidsOf(v.Old); !slices.Equal(got, []int{400, 401, 405, 406, 407}) {
		t.Errorf("old: %v", got)
	}
}

// TestChildrenBlockedThread: the first thread of a shim sleeps while another is
// stuck. It is so as long as that one is, also where it runs in between: a disk that is
// throttled lets it.
func TestChildrenBlockedThread(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, 0, "systemd", 'S')
	process(t, root, 100, 1, "containerd", 'S')
	for pid := 200; pid < 220; pid++ { // more than are looked at closely at a time
		process(t, root, pid, 1, "containerd-shim", 'S')
		evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/task/%d/stat", pid, pid): evidencetest.StatLine(pid, "containerd-shim", 'S', 1, 1000)})
	}
	thread := func(state byte, slices int) {
		evidencetest.WriteTree(t, root, map[string]string{
			"219/task/777/stat":      evidencetest.StatLine(777, "containerd-shim", state, 1, 1000),
			"219/task/777/schedstat": fmt.Sprintf("1 1 %d\n", slices),
		})
	}
	thread('D', 5)
	w := childrenOf(root, "testdata/none", 100)
	var c *facts.Child
	for range 22 {
		if c = childPID(gatherChildren(t, w).Stuck, 219); c != nil {
			break
		}
	}
	if c == nil || c.State != "D" {
		t.Fatalf("%+v, want it in D", c)
	}
	first := c.Since
	if c = childPID(gatherChildren(t, w).Stuck, 219); c == nil || !c.Since.Equal(first) {
		t.Errorf("%+v, want it in D since %s", c, first)
	}
	thread('D', 6)
	if c = childPID(gatherChildren(t, w).Stuck, 219); c == nil || !c.Since.Equal(first) {
		t.Errorf("%+v, want it in D since %s", c, first)
	}
	for _, tt := range []struct {
		channel string
		stuck   bool
	}{{"anon_pipe_write", true}, {"futex_wait_queue", false}} {
		thread('S', 7)
		evidencetest.WriteTree(t, root, map[string]string{"219/task/777/wchan": tt.channel})
		for range 22 {
			c = childPID(gatherChildren(t, w).Stuck, 219)
		}
		if tt.stuck != (c != nil && c.State == "S") || !tt.stuck && len(w.stuck) != 0 {
			t.Errorf("%s: %+v, %d remembered", tt.channel, c, len(w.stuck))
		}
	}
}
