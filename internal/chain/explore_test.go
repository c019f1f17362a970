package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// symptomOf is a call that hangs because of the target.
func symptomOf(targets ...*cri.Entry) Symptom {
	return Symptom{
		Symptom: facts.Symptom{Operation: "list_containers"}, OthersAnswered: always, Lasts: always, Targets: func() []*cri.Entry { return targets },
	}
}

// TestMountOfRuntime: the status of a container that has no shim yet hangs, and the
// daemon that starts it waits for a mount, or for the file lock of another process. A daemon that
// waits for nothing is not named. The same where Status hangs alone.
func TestMountOfRuntime(t *testing.T) {
	const lock = "1: FLOCK ADVISORY WRITE 12 fe:00:5 0 EOF\n1: -> FLOCK ADVISORY WRITE 10 fe:00:5 0 EOF\n"
	for _, tt := range []struct {
		name   string
		daemon int
		files  map[string]string
		peer   byte
		want   facts.Link
	}{
		{"nothing", 0, nil, 'S', facts.Link{Kind: facts.KindContainer}},
		{"a mount", 10, map[string]string{"10/task/10/wchan": "rpc_wait_bit_killable"}, 'S', facts.Link{Kind: facts.KindMount, Name: "/volume"}},
		{"a stopped process", 10, map[string]string{"locks": lock}, 'T', facts.Link{Kind: facts.KindProcess, PID: 12}},
		{"an idle process", 10, map[string]string{"locks": lock}, 'S', facts.Link{Kind: facts.KindProcess, PID: 12}},
		{"nothing, beside locks", 10, map[string]string{"locks": ""}, 'S', facts.Link{Kind: facts.KindContainer}},
		{"a frozen file system", 10, map[string]string{"10/task/10/wchan": "percpu_rwsem_wait"}, 'S', facts.Link{Kind: facts.KindKernel, Evidence: ": `fsfreeze -u /` or `fsfreeze -u /data` thaws it"}},
		{"a mount, beside an idle daemon", 12, map[string]string{"11/task/11/wchan": "rpc_wait_bit_killable"}, 'S', facts.Link{Kind: facts.KindMount, Name: "/volume"}},
	} {
		state := byte('S')
		if tt.want.Kind == facts.KindMount || tt.want.Kind == facts.KindKernel {
			state = 'D'
		}
		states := map[int]byte{10: 'S', 11: 'S', 12: tt.peer}
		blocked := 10
		if tt.daemon == 12 {
			blocked = 11
		}
		states[blocked] = state
		root := procTree(t, states)
		lockedBy(t, root, 12, "fe:00:5")
		if state == 'D' {
			evidencetest.WriteTree(t, root, map[string]string{
				fmt.Sprintf("%d/task/%[1]d/syscall", blocked): fmt.Sprintf("%d 0xffffff9c 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_NEWFSTATAT),
				fmt.Sprintf("%d/mountinfo", blocked):          "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n30 1 0:93 / /volume rw - nfs4 server:/export rw\n31 1 8:1 /b /b rw - ext4 /dev/sda1 rw\n32 1 8:2 / /data rw - xfs /dev/sda2 rw\n",
			})
		}
		evidencetest.WriteTree(t, root, tt.files)
		sysfs := t.TempDir()
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
		for i, targets := range [][]*cri.Entry{
			{{ID: "c", SandboxID: "s"}},
			{{ID: "c", SandboxID: "s"}, {ID: "d", SandboxID: "t"}}, // of different pods
			{}, // each is answered
			{}, // the call is Status
		} {
			s := symptomOf(targets...)
			if i == 3 {
				s.Operation = cri.OpStatus
			}
			s.RuntimePID = 11
			s.DaemonPID = tt.daemon
			e := New(proc.NewTable(root), sysfs, nil)
			e.symptom = s
			e.sweep = sweep{asked: 2, hung: targets}
			c := facts.Chain{Links: []facts.Link{{Kind: facts.KindCall, Name: "list_containers"}}}
			e.fromCall(t.Context(), &c)
			last := c.Links[len(c.Links)-1]
			want := tt.want
			isUnknown := want.Kind == facts.KindContainer
			if isUnknown && len(targets) != 1 {
				want = facts.Link{Kind: facts.KindCall, Name: "list_containers"}
			}
			isLast := last.Kind == want.Kind && last.PID == want.PID && (want.Name == "" || last.Name == want.Name) && strings.Contains(last.Evidence, want.Evidence)
			if !isLast || (c.Unknown != "") != isUnknown {
				t.Errorf("%s, %d targets: %+v, %q", tt.name, len(targets), c.Links, c.Unknown)
			}
		}
	}
}

// TestLoopMount: a write to a loop device's file system waits for the mount below, and where it is
// frozen for itself.
func TestLoopMount(t *testing.T) {
	for channel, want := range map[string]string{
		"percpu_rwsem_wait": "/data frozen", "__sb_start_write": "/data frozen", "folio_wait_bit": "/ blocked", "jbd2_log_wait_commit": "/ blocked",
	} {
		root, sysfs := procTree(t, map[int]byte{10: 'D'}), t.TempDir()
		evidencetest.WriteTree(t, sysfs, map[string]string{"block/loop0/loop/backing_file": "/data.img\n"})
		evidencetest.WriteTree(t, root, map[string]string{
			"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_PWRITE64),
			"10/task/10/wchan":   channel,
			"10/fdinfo/3":        "pos:\t0\nflags:\t02\nmnt_id:\t30\n",
			"10/mountinfo":       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n30 1 7:0 / /data rw - ext4 /dev/loop0 rw\n",
		})
		must.Do(t, os.Symlink("/data/file", root+"/10/fd/3"))
		c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
		last := c.Links[len(c.Links)-1]
		check.Equal(t, last.Name+" "+string(last.State), want, "%s: %+v", channel, c)
	}
}

// TestOnlyMount: a thread whose file is not known waits for the only FUSE mount that may owe an answer: not
// for one without a request, or whose server has ended, where the kernel shows that.
func TestOnlyMount(t *testing.T) {
	const live, other, block = "fuse_connection:\t50\n", "fuse_connection:\t51\n", "fuse_connection:\t7340034\n"
	for _, tt := range []struct {
		name    string
		mounts  string
		servers []string // the fdinfo of /dev/fuse of each
		waiting string   // the requests to the second mount, "" where that is not known
		want    string   // a mount's point and its server
	}{
		{name: "one is without a server", servers: []string{live}, want: "/a 20"},
		{name: "the other one is", servers: []string{other}, want: "/b 20"},
		{name: "one of a disk", mounts: "32 1 7:2 / /c rw - fuseblk /dev/loop2 rw\n", servers: []string{block}, want: "/c 20"},
		{name: "both have one", servers: []string{live, other}},
		{name: "none has one", servers: nil},
		{name: "the kernel does not show whose a server is", servers: []string{"flags:\t02\n"}},
		{name: "one has no request", servers: []string{live, other}, waiting: "0", want: "/a 20"},
		{name: "both have requests", servers: []string{live}, waiting: "2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, sysfs := procTree(t, map[int]byte{10: 'D', 20: 'S', 21: 'S'}), t.TempDir()
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0xffffff9c 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_NEWFSTATAT),
				"10/task/10/wchan":   "request_wait_answer",
				"10/mountinfo":       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n30 1 0:50 / /a rw - fuse a rw\n31 1 0:51 / /b rw - fuse.b b rw\n" + tt.mounts,
			})
			if tt.waiting != "" {
				evidencetest.WriteTree(t, sysfs, map[string]string{"fs/fuse/connections/51/waiting": tt.waiting + "\n"})
			}
			for i, fdinfo := range tt.servers {
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/fdinfo/3", 20+i): fdinfo})
				must.Do(t, os.Symlink("/dev/fuse", fmt.Sprintf("%s/%d/fd/3", root, 20+i)))
			}
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			got := ""
			if mount := c.Link(facts.KindMount); mount != nil {
				got = fmt.Sprint(mount.Name, " ", c.Culprit().PID)
			}
			check.Equal(t, got, tt.want, "%+v", c)
		})
	}
}

// TestAutofs: a thread that looks something up waits for the daemon of the only autofs mount, and not for systemd's mounts.
func TestAutofs(t *testing.T) {
	const systemd = "30 1 0:40 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw,fd=32,pgrp=1,timeout=0,direct\n"
	const home, misc = "31 1 0:41 / /home rw - autofs auto.home rw,fd=6,pgrp=20,timeout=300,indirect\n", "32 1 0:42 / /misc rw - autofs auto.misc rw,fd=7,pgrp=21,timeout=300,indirect\n"
	for mounts, want := range map[string]string{systemd: "", systemd + home: "/home 20", home: "/home 20", home + misc: ""} {
		root, sysfs := procTree(t, map[int]byte{10: 'D', 20: 'T', 21: 'S'}), t.TempDir()
		evidencetest.WriteTree(t, root, map[string]string{
			"10/task/10/syscall": fmt.Sprintf("%d 0xffffff9c 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_NEWFSTATAT),
			"10/task/10/wchan":   "autofs_wait",
			"10/mountinfo":       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts,
		})
		c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
		got := ""
		if mount := c.Link(facts.KindMount); mount != nil {
			got = fmt.Sprint(mount.Name, " ", c.Culprit().PID)
		}
		check.Equal(t, got, want, "%q: %+v", mounts, c)
	}
}

// TestPluginOfTarget: the status of a sandbox waits for its own network plugin, a child of cri-dockerd,
// and not for that of another one. Whose a plugin is whose environment cannot be read is not known.
func TestPluginOfTarget(t *testing.T) {
	for id, want := range map[string]int{"s": 12, "other": 0, "": 0} {
		root, sysfs := procTree(t, map[int]byte{10: 'S', 11: 'S', 12: 'S'}), t.TempDir()
		environ := map[string]string{"12/environ": "CNI_COMMAND=DEL\x00CNI_CONTAINERID=" + id + "\x00"}
		if id == "" {
			environ = map[string]string{"12/environ/directory": ""}
		}
		evidencetest.WriteTree(t, root, map[string]string{"12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100)})
		evidencetest.WriteTree(t, root, environ)
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
		s := symptomOf(&cri.Entry{ID: "s", Sandbox: true})
		s.RuntimePID, s.DaemonPID = 10, 11
		c := New(proc.NewTable(root), sysfs, (&fakeAsker{hang: " s "}).ask).Explore(t.Context(), s)
		got := 0
		if helper := c.Link(facts.KindHelper); helper != nil {
			got = helper.PID
		}
		check.Equal(t, got, want, "plugin of %s: %+v", id, c)
		check.Equal(t, strings.Contains(c.Unknown, "pid 12 (plugin) works on it could not be read"), id == "", "plugin of %s: %q", id, c.Unknown)
	}
}

// TestPidfd: a helper that waits for nothing else waits for the process of which it has a pidfd, by whichever call; one that waits
// for a signal waits for its child.
func TestPidfd(t *testing.T) {
	for call, want := range map[string]int{
		"7 0x1 0x1 0x0 0x0 0x0 0x0 0x1 0x1\n":   13, // poll
		"232 0x4 0x1 0x1 0x0 0x0 0x0 0x1 0x1\n": 13, // epoll_wait
		"61 0xe 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n":  14, // wait4 of its child
		"130 0x1 0x8 0x0 0x0 0x0 0x0 0x1 0x1\n": 14, // rt_sigsuspend, until its child ends
	} {
		root := procTree(t, map[int]byte{10: 'S', 12: 'S', 13: 'T', 14: 'T'})
		evidencetest.WriteTree(t, root, map[string]string{
			"12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100), "12/task/12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100), "14/stat": evidencetest.StatLine(14, "child", 'T', 12, 100),
			"12/task/12/syscall": call, "12/task/12/wchan": "do_wait", "12/fdinfo/5": "Pid:\t13\n", "12/fdinfo/6": "Pid:\t-1\n",
		})
		c := chainOfPIDFDs(t, root)
		got := 0
		if culprit := c.Culprit(); culprit != nil {
			got = culprit.PID
		}
		check.Equal(t, got, want, "%s: %+v", call, c)
	}
}

// TestCore: a helper that has crashed waits for the program that receives its core.
func TestCore(t *testing.T) {
	for name, tt := range map[string]struct {
		pattern, args string // of process 15
		want          int    // the culprit
		unknown       string
	}{
		"a program that is stopped": {pattern: "|/lib/coredump %P", args: "/lib/coredump\x0012\x00", want: 15},
		"it receives another one's": {pattern: "|/lib/coredump %P", args: "/bin/other\x0012\x00", want: 12, unknown: "0 processes"},
		"a file":                    {pattern: "core", args: "/lib/coredump\x00", want: 12},
	} {
		root := procTree(t, map[int]byte{10: 'S', 12: 'S', 15: 'T'})
		evidencetest.WriteTree(t, root, map[string]string{
			"12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100), "12/task/12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100),
			"12/task/12/wchan": "anon_pipe_write", "12/task/12/syscall": "-1 0x1 0x1\n", "12/status": evidencetest.RootStatus + "CoreDumping:\t1\n",
			"15/stat": evidencetest.StatLine(15, "coredump", 'T', kernelThreads, 100), "15/cmdline": tt.args, "sys/kernel/core_pattern": tt.pattern + "\n",
		})
		sysfs := t.TempDir()
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
		c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 12)
		check.Equal(t, c.Culprit().PID, tt.want, "%s: %+v", name, c)
		check.Equal(t, strings.Contains(c.Unknown, tt.unknown) && (c.Unknown == "") == (tt.unknown == ""), true, "%s: %+v", name, c)
		check.Equal(t, strings.Contains(c.Links[0].Evidence, "has crashed"), true, "%s: %+v", name, c)
	}
}

// chainOfPIDFDs returns the chain from process 12, a helper of runtime 10 whose descriptors 5 and 6 are pidfds.
func chainOfPIDFDs(t *testing.T, root string) facts.Chain {
	t.Helper()
	for _, fd := range []string{"5", "6"} {
		must.Do(t, os.Symlink("anon_inode:[pidfd]", filepath.Join(root, "12/fd", fd)))
	}
	sysfs := t.TempDir()
	evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
	e := New(proc.NewTable(root), sysfs, nil)
	e.symptom.RuntimePID = 10
	return e.Process(t.Context(), 12)
}

// TestHeldUpPeers: of several processes whose answer a helper may wait for, the only one that is held up itself is followed.
func TestHeldUpPeers(t *testing.T) {
	for child, want := range map[byte]int{'T': 14, 'R': 12} { // for which one of them waits
		root := procTree(t, map[int]byte{10: 'S', 12: 'S', 13: 'S', 14: child, 15: 'S'})
		evidencetest.WriteTree(t, root, map[string]string{
			"12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100), "12/task/12/stat": evidencetest.StatLine(12, "plugin", 'S', 10, 100),
			"14/stat":            evidencetest.StatLine(14, "child", child, 13, 100),
			"12/task/12/syscall": "232 0x4 0x1 0x1 0x0 0x0 0x0 0x1 0x1\n", "12/fdinfo/5": "Pid:\t13\n", "12/fdinfo/6": "Pid:\t15\n",
			"13/task/13/syscall": "61 0xe 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n", "13/task/13/wchan": "do_wait",
		})
		c := chainOfPIDFDs(t, root)
		check.Equal(t, c.Links[len(c.Links)-1].PID, want, "a child in %c: %+v", child, c)
	}
}

// TestShimOfTarget: the chain goes by the shim of the container before that of its
// sandbox, with its id and pod, and names no idle one.
func TestShimOfTarget(t *testing.T) {
	const impostor = 12
	for _, tt := range []struct {
		name  string
		shims map[int]string // the id in the arguments, by pid
		state byte           // of all of them
		pid   int            // 0: none is named
	}{
		{"the sandbox's, as containerd", map[int]string{10: "s", 11: "other"}, 'T', 10},
		{"the container's, as Docker", map[int]string{10: "s", 11: "c"}, 'T', 11},
		{"another user's has its id, too", map[int]string{10: "s", impostor: "s"}, 'T', 10},
		{"an idle one", map[int]string{10: "s"}, 'S', 0},
		{"none", map[int]string{11: "other"}, 'T', 0},
	} {
		states := map[int]byte{}
		for pid := range tt.shims {
			states[pid] = tt.state
		}
		root := procTree(t, states)
		for pid, id := range tt.shims {
			evidencetest.WriteTree(t, root, map[string]string{
				fmt.Sprintf("%d/stat", pid):        evidencetest.StatLine(pid, "containerd-shim", tt.state, 1, 100),
				fmt.Sprintf("%d/status", impostor): "Uid:\t1000\t0\t0\t0\nNSpid:\t7\n",
				fmt.Sprintf("%d/cmdline", pid):     "/usr/bin/containerd-shim-runc-v2\x00-id\x00" + id + "\x00",
			})
		}
		s := symptomOf(&cri.Entry{ID: "c", SandboxID: "s", PodNamespace: "ns", PodName: "pod", Name: "x"})
		s.Pod = func(id string) string { return "pod-of-" + id }
		sysfs := t.TempDir()
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
		c := New(proc.NewTable(root), sysfs, (&fakeAsker{hang: " c "}).ask).Explore(t.Context(), s)
		last := c.Links[len(c.Links)-1]
		switch {
		case tt.pid == 0 && (last.Kind != facts.KindContainer || last.RuntimeID != "c" || last.Name != "ns/pod/x" || c.Unknown == ""):
			t.Errorf("%s: %+v, %q", tt.name, c.Links, c.Unknown)
		case tt.pid != 0 && (last.PID != tt.pid || last.Kind != facts.KindShim || last.Pod != "pod-of-"+tt.shims[tt.pid] ||
			last.RuntimeID != tt.shims[tt.pid] || last.State != facts.LinkStopped || c.Unknown != ""):
			t.Errorf("%s: %+v, %q", tt.name, c.Links, c.Unknown)
		}
	}
}

// TestUnlistedTarget: what a helper of a shim works on is asked for although no list has it yet, and the chain goes on by that
// shim; a helper that names what is listed, or nothing, adds nothing.
func TestUnlistedTarget(t *testing.T) {
	made := strings.Repeat("0a", idLength/2)
	for _, tt := range []struct {
		name, argument string
		asked          int
		found          bool
	}{
		{"a new container", made, 2, true},
		{"a listed one", "c", 1, false},
		{"no id", "bundle", 1, false},
	} {
		root := procTree(t, map[int]byte{10: 'S', 11: 'T'})
		evidencetest.WriteTree(t, root, map[string]string{
			"10/stat":    evidencetest.StatLine(10, "containerd-shim", 'S', 1, 100),
			"10/cmdline": "/usr/bin/containerd-shim-runc-v2\x00-id\x00s\x00",
			"11/stat":    evidencetest.StatLine(11, "runc", 'T', 10, 5000),
			"11/cmdline": "runc\x00update\x00" + tt.argument + "\x00",
		})
		asker := &fakeAsker{hang: " " + made + " "}
		sysfs := t.TempDir()
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
		c := New(proc.NewTable(root), sysfs, asker.ask).Explore(t.Context(), symptomOf(&cri.Entry{ID: "c", SandboxID: "s"}))
		check.Equal(t, asker.asked, tt.asked, "%s: asked for", tt.name)
		check.Equal(t, c.Culprit() != nil && c.Culprit().PID == 11, tt.found, "%s: %+v", tt.name, c)
	}
}
