package evidence

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// fixtureUp is the time since boot in the fixture: its processes were started
// after 40 to 70 s.
const fixtureUp = 200 * time.Second

func childrenOf(procfs, sysfs string, pid int) *childrenSource {
	table := proc.NewTable(procfs)
	c := &childrenSource{
		hop:     &hop{procfs: procfs, sysfs: sysfs, table: table, process: processWith(proc.Process{PID: 0})},
		family:  family.NewShims(table),
		sockets: namesOf(""), changes: func() uint64 { return 0 },
	}
	newChildren(c)
	c.process = processWith(proc.Process{PID: pid})
	if procfs != "/proc" {
		c.up = func() time.Duration { return fixtureUp }
	}
	return c
}

func gatherChildren(t *testing.T, w *childrenSource) *facts.Children {
	t.Helper()
	w.runtime = 0 // so that it reads the processes again
	v, err := w.gather(t.Context())
	must.Do(t, err)
	return v
}

// childPID returns the child of a pid, nil when it is not there.
func childPID(in []facts.Child, pid int) *facts.Child {
	for i := range in {
		if in[i].PID == pid {
			return &in[i]
		}
	}
	return nil
}

// TestChildrenFixture: shims and conmons by name and state, helpers by parent
// and age, the dead ones not at all.
func TestChildrenFixture(t *testing.T) {
	w := childrenOf("testdata/proc", "testdata/cgroup_v1", 1000)
	first := gatherChildren(t, w)
	if childPID(first.Stuck, 3008) != nil {
		t.Error("3008 is said to be in D at first sight")
	}
	v := gatherChildren(t, w)
	byPID := cmpopts.SortSlices(func(a, b facts.Child) bool { return a.PID < b.PID })
	stuck := []facts.Child{
		{PID: 3000, Comm: "containerd-shim", State: "F", Since: first.At}, // its cgroup is frozen
		{PID: 3001, Comm: "containerd-shim", State: "T", Since: first.At},
		{PID: 3008, Comm: "conmonrs", State: "D", Since: first.At},
		{PID: 3011, Comm: "containerd-shim", State: "T", Since: first.At}, // by a tracer; a shim though it is the runtime's child
	}
	if diff := cmp.Diff(stuck, v.Stuck, byPID); diff != "" || v.Shims != 6 {
		t.Errorf("%d shims, stuck: %s", v.Shims, diff)
	}
	old := []facts.Child{ // longest first
		{PID: 3013, Comm: "bridge", State: "D", Since: v.At.Add(65*time.Second - fixtureUp)},
		{PID: 3003, Comm: "runc", State: "S", Since: v.At.Add(70*time.Second - fixtureUp)},
	}
	check.Same(t, v.Old, old, "old", cmpopts.EquateApproxTime(time.Second))
	// The same once more: since when stays.
	again := gatherChildren(t, w)
	check.Same(t, again.Stuck, stuck, "stuck, a second time", byPID)
	if none := gatherChildren(t, childrenOf("testdata/proc", "testdata/cgroup_v1", 2000)); none.Old != nil || none.Shims != 5 { // one is the child of another process
		t.Errorf("%+v of a runtime without children", none)
	}
}

// TestStoppedStartsNothing: once the processes have been read since the runtime was stopped, they are read no sooner
// than in the steady state.
func TestStoppedStartsNothing(t *testing.T) {
	stopped := time.Now()
	states := map[string]int{"T": 3}
	for name, tt := range map[string]struct {
		process *facts.Process
		read    time.Time
		want    bool
	}{
		"read since":             {&facts.Process{Alive: true, Threads: states, Stops: []time.Time{stopped}}, stopped.Add(1), true},
		"read before":            {&facts.Process{Alive: true, Threads: states, Stops: []time.Time{stopped}}, stopped, false},
		"stopped again":          {&facts.Process{Alive: true, Threads: states, Stops: []time.Time{stopped, stopped.Add(2)}}, stopped.Add(1), false},
		"one thread runs":        {&facts.Process{Alive: true, Threads: map[string]int{"T": 2, "S": 1}, Stops: []time.Time{stopped}}, stopped.Add(1), false},
		"stopped before plegd":   {&facts.Process{Alive: true, Threads: states}, stopped.Add(1), false},
		"it has ended meanwhile": {&facts.Process{Threads: states, Stops: []time.Time{stopped}}, stopped.Add(1), false},
	} {
		process := newProcess(&hop{})
		process.Watch.last.Store(&sample[facts.Process]{Source: facts.Source{Up: true}, value: tt.process})
		c := &childrenSource{hop: &hop{process: process}, all: &proc.Processes{At: tt.read}}
		check.Equal(t, c.startsNothing(), tt.want, "%s", name)
	}
}

// TestChildrenSince follows one shim through its states, a second apart.
func TestChildrenSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := evidencetest.CopyTree(t, "testdata/proc")
		w := childrenOf(root, "testdata/cgroup_v1", 1000)
		for i, step := range []struct {
			state byte
			group string // pod1 is frozen
			start uint64
			want  string
		}{
			{'S', "pod2", 6000, ""}, {'T', "pod2", 6000, "T 0s"}, {'T', "pod2", 6000, "T 1s"}, {'D', "pod1", 6000, "F 0s"},
			{'T', "pod2", 6000, "T 0s"}, {'T', "pod2", 7000, "T 0s"}, // another process by that pid
			{'S', "pod2", 7000, ""}, {'R', "pod2", 7000, ""}, {'Z', "pod2", 7000, ""}, {'X', "pod2", 7000, ""},
		} {
			evidencetest.WriteTree(t, root, map[string]string{
				"3006/stat":   evidencetest.StatLine(3006, "containerd-shim", step.state, 1, step.start),
				"3006/cgroup": "5:freezer:/kubepods/" + step.group + "\n",
			})
			got := ""
			if c := childPID(gatherChildren(t, w).Stuck, 3006); c != nil {
				got = c.State + " " + time.Since(c.Since).String()
			}
			check.Equal(t, got, step.want, "step %d", i)
			time.Sleep(time.Second)
		}
	})
}

func TestChildrenNone(t *testing.T) {
	if v, err := childrenOf("testdata/proc", "testdata/cgroup_v1", 0).gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := childrenOf(t.TempDir(), "", 5).gather(t.Context()); err == nil || errors.Is(err, ErrNoData) {
		t.Errorf("%+v, %v; want an error without a /proc", v, err)
	}
}

// TestForeignShim: a shim that serves another runtime is none of this one, nor is
// what that shim has started; nor is one whose arguments cannot be read, or
// podman's conmon.
func TestForeignShim(t *testing.T) {
	const shimPath, socket = "/usr/bin/containerd-shim-runc-v2", "/run/containerd/containerd.sock"
	root := t.TempDir()
	process(t, root, 1, 0, "systemd", 'S')
	for pid, comm := range map[int]string{5: "containerd", 6: "crio", 7: "cri-dockerd"} {
		process(t, root, pid, 1, comm, 'S')
	}
	process(t, root, 10, 1, "containerd-shim", 'T', shimPath, "-namespace", "k8s.io", "-id", "abc", "-address", socket)
	process(t, root, 11, 1, "containerd-shim", 'T', shimPath, "-namespace", "k8s.io", "-id", "def", "-address", "/run/docker/containerd/containerd.sock")
	process(t, root, 12, 10, "runc", 'S', "runc", "create")
	process(t, root, 13, 11, "runc", 'S', "runc", "create")
	process(t, root, 14, 1, "containerd-shim", 'T', shimPath, "-namespace", "moby", "-id", "ghi", "-address", socket)
	process(t, root, 15, 1, "containerd-shim", 'T')
	process(t, root, 20, 1, "conmon", 'T', "/usr/bin/conmon", "-b", "/x/userdata", "-c", "f00d", "--exit-dir", "/var/run/crio/exits", "-n", "k8s_POD_a_b_c_0", "-r", "/usr/bin/runc")
	process(t, root, 21, 1, "conmon", 'T', "/usr/bin/conmon", "--api-version", "1", "-c", "beef", "-n", "web", "--exit-dir", "/run/libpod/exits", "--exit-command", "/usr/bin/podman", "--exit-command-arg", "--root")
	process(t, root, 22, 1, "conmon", 'T', "/usr/bin/conmon", "--api-version", "1", "-c", "cafe", "-n", "k8s_by_hand", "--exit-command", "/usr/bin/podman")
	process(t, root, 23, 21, "runc", 'S', "runc", "create")
	for name, tt := range map[string]struct {
		runtime   int
		socket    string
		stuck     []int
		old       []int
		sandboxes string
	}{
		"containerd":                     {5, "/var" + socket, []int{10}, []int{12}, "abc"},
		"a containerd of another path":   {5, "/run/other.sock", nil, nil, ""},
		"CRI-O":                          {6, "/run/crio/crio.sock", []int{20}, nil, "f00d"},
		"dockerd on the same containerd": {7, socket, []int{14}, nil, "ghi"},
	} {
		c := childrenOf(root, "testdata/none", tt.runtime)
		c.sockets = namesOf(tt.socket)
		for range 3 { // settled or not
			v := gatherChildren(t, c)
			if got := pidsOf(v.Stuck); !slices.Equal(got, tt.stuck) || v.Shims != len(tt.stuck) || len(got) > 0 && v.Stuck[0].Sandbox != tt.sandboxes {
				t.Errorf("%s: %d shims, stuck %+v, want %d", name, v.Shims, v.Stuck, tt.stuck)
			}
			if got := pidsOf(v.Old); !slices.Equal(got, tt.old) {
				t.Errorf("%s: old %v, want %d", name, got, tt.old)
			}
		}
	}
}

// TestShimFrozenWithRuntime: a freezer that holds the runtime's service holds its
// shims too, and they are no cause; one that holds a shim alone is.
func TestShimFrozenWithRuntime(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	v1 := func(path string) string { return "4:freezer:" + path + "\n" }
	v2 := func(path string) string { return "0::" + path + "\n" }
	for _, tt := range []struct {
		name   string
		line   func(string) string
		state  byte
		frozen map[string]string
	}{
		{"v1", v1, 'D', map[string]string{"fs/cgroup/freezer/a/freezer.state": "FROZEN\n", "fs/cgroup/freezer/b/freezer.state": "THAWED\n"}},
		{"v2", v2, 'S', map[string]string{"fs/cgroup/cgroup.controllers": "cpu\n", "fs/cgroup/a/cgroup.events": "frozen 1\n", "fs/cgroup/b/cgroup.events": "frozen 0\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, sys := t.TempDir(), t.TempDir()
			evidencetest.WriteTree(t, sys, tt.frozen)
			process(t, root, 1, 0, "systemd", 'S')
			process(t, root, 5, 1, "containerd", 'S', "/usr/bin/containerd")
			process(t, root, 60, 1, "containerd-shim", tt.state, "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", socket)
			evidencetest.WriteTree(t, root, map[string]string{"60/cgroup": tt.line("/a")})
			w := childrenOf(root, sys, 5)
			w.sockets = namesOf(socket)
			w.up = func() time.Duration { return fixtureUp }
			for runtime, want := range map[string]bool{"/a": false, "/b": true} {
				evidencetest.WriteTree(t, root, map[string]string{"5/cgroup": tt.line(runtime)})
				gatherChildren(t, w)
				v := gatherChildren(t, w)
				if stuck := childPID(v.Stuck, 60); v.Shims != 1 || (stuck != nil) != want {
					t.Errorf("the runtime in %s: %d shims, of which stuck: %+v; want the frozen one among them: %t", runtime, v.Shims, v.Stuck, want)
				}
			}
		})
	}
}

// TestShimAwaitsExec: a shim in D that waits until its child has begun another program is not
// stuck itself.
func TestShimAwaitsExec(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	for channel, want := range map[string]bool{"wait_for_vfork_done": false, "kernel_clone": false, "rpc_wait_bit_killable": true, "": true} {
		root := t.TempDir()
		process(t, root, 1, 0, "systemd", 'S')
		process(t, root, 5, 1, "containerd", 'S', "/usr/bin/containerd")
		process(t, root, 60, 1, "containerd-shim", 'D', "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", socket)
		evidencetest.WriteTree(t, root, map[string]string{
			"60/task/60/stat":  evidencetest.StatLine(60, "containerd-shim", 'D', 1, 4000),
			"60/task/60/wchan": channel,
		})
		w := childrenOf(root, t.TempDir(), 5)
		w.sockets = namesOf(socket)
		w.up = func() time.Duration { return fixtureUp }
		gatherChildren(t, w)
		v := gatherChildren(t, w)
		if stuck := childPID(v.Stuck, 60); v.Shims != 1 || (stuck != nil) != want {
			t.Errorf("a shim in %q: stuck is %+v, want %t", channel, stuck, want)
		}
	}
}

// TestChildrenSearch: a new shim is found by the next pass over all processes, which
// comes sooner while something may be wrong or a pod has changed. A known one is seen to
// stop in between, and to have ended although another process has its pid.
func TestChildrenSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const socket = "/run/containerd/containerd.sock"
		root := t.TempDir()
		shim := func(pid int, state byte) {
			process(t, root, pid, 1, "containerd-shim", state, "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", socket)
		}
		process(t, root, 1, 0, "systemd", 'S')
		process(t, root, 5, 1, "containerd", 'S', "/usr/bin/containerd")
		shim(60, 'S')
		changes, calm := uint64(0), true
		w := childrenOf(root, t.TempDir(), 5)
		w.sockets, w.changes, w.calm = namesOf(socket), func() uint64 { return changes }, func() bool { return calm }
		expect := func(what string, shims, stuck int) {
			t.Helper()
			v, err := w.gather(t.Context())
			must.Do(t, err)
			if v.Shims != shims || len(v.Stuck) != stuck {
				t.Errorf("%s: %d shims, %d stuck; want %d and %d", what, v.Shims, len(v.Stuck), shims, stuck)
			}
		}
		expect("at first", 1, 0)
		shim(61, 'S')
		later(familyInterval)
		expect("in the steady state", 1, 0)
		shim(60, 'T')
		expect("the known one is stopped", 1, 1)
		shim(60, 'S')
		expect("it continues", 1, 0)
		later(familyCalm)
		expect("after the long interval", 2, 0)
		shim(62, 'S')
		changes++
		expect("a pod has changed", 2, 0)
		later(familyInterval)
		expect("after the short interval", 3, 0)
		shim(63, 'S')
		calm = false
		later(familyInterval)
		expect("something may be wrong", 4, 0)
		evidencetest.WriteTree(t, root, map[string]string{"63/stat": evidencetest.StatLine(63, "containerd-shim", 'S', 1, 9000)})
		expect("another process has its pid", 3, 0)
		shim(64, 'S')
		_, err := w.table.Processes(t.Context(), 0)
		must.Do(t, err)
		expect("somebody else has read the processes", 3, 0)
		later(familyInterval)
		expect("at the next search", 5, 0)
		stopped := facts.Process{PID: 5, Alive: true, Threads: map[string]int{"T": 1}, Stops: []time.Time{w.all.At.Add(-1)}}
		w.process.Watch.last.Store(&sample[facts.Process]{Source: facts.Source{Up: true}, value: &stopped})
		shim(64, 'T')
		expect("the runtime is stopped", 5, 0)
		later(restInterval)
		expect("at the next look", 5, 1)
		shim(64, 'S')
		expect("a stuck one is looked at each time", 5, 0)
	})
}

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
