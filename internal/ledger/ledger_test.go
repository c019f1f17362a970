package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// process is one of a made-up node: flags are those of its stat, pending its SigPnd.
type process struct {
	pid, parent int
	comm        string
	state       byte
	exiting     bool
	pending     string
	uid         int
	arguments   []string
	pidNS       string // "" for the node's
	nsPID       int    // in its PID namespace, 0 for 7
	tracer      int
	age         time.Duration // 0 for that of the node
}

const socket = "/run/containerd/containerd.sock"

// shimOf are the arguments of a shim of the runtime at a socket.
func shimOf(socket string) []string {
	return []string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "abc", "-address", socket}
}

// optionsOf are those of a ledger of a node whose runtime lists nothing.
func optionsOf(t *testing.T, root string, now *time.Time) Options {
	t.Helper()
	table := proc.NewTable(root)
	return Options{
		Table: table, Shims: family.NewShims(table), SysFS: t.TempDir(), PIDs: func() []int { return []int{10, 0} },
		Sockets:  func() []string { return []string{socket} },
		Listed:   func() map[string]*cri.Entry { return nil },
		ListedAt: func() time.Time { return *now },
		Failures: func() []string { return nil }, TakeDropped: func() []*cri.Entry { return nil },
		StartsWait: func() time.Time { return time.Time{} }, StartsFail: func() time.Time { return time.Time{} },
		Suspects: func() bool { return false }, CallsAreSlow: func() bool { return false }, EndsPods: func() bool { return false }, FailedStarts: func() []cri.FailedStart { return nil }, CreatesFail: func() bool { return false },
		HasBegun:       func(context.Context, *cri.Entry) bool { return false },
		NetworkOf:      func(context.Context, *cri.Entry) (string, error) { return "", nil },
		NetworkPlugins: func(context.Context) ([][]string, error) { return nil, nil },
		Clock:          func() time.Time { return *now },
		Sleep:          func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil },
	}
}

// node writes a /proc with a runtime, pid 10, a shim, pid 20, and processes of its container.
func node(t *testing.T, processes []process) string {
	t.Helper()
	root := t.TempDir()
	all := append([]process{
		{pid: 1, comm: "systemd", state: 'S'},
		{pid: 10, parent: 1, comm: "containerd", state: 'S'},
		{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: shimOf(socket)},
	}, processes...)
	for _, p := range all {
		write(t, root, p)
	}
	return root
}

// write writes a process, instead of the one with its number.
func write(t *testing.T, root string, p process) {
	t.Helper()
	namespace := filepath.Join(root, fmt.Sprint(p.pid), "ns/pid")
	_ = os.Remove(namespace) // of the process before, which this one replaces
	start := uint64(100)
	if p.age != 0 {
		start = uint64((proc.Uptime() - p.age).Seconds() * proc.ClockTicks)
	}
	line := evidencetest.StatLine(p.pid, p.comm, p.state, p.parent, start)
	if p.exiting {
		before, after, _ := strings.Cut(line, ") ")
		fields := strings.Fields(after)
		fields[6] = "4"
		line = before + ") " + strings.Join(fields, " ") + "\n"
	}
	tracer := fmt.Sprintf("TracerPid:\t%d\n", p.tracer)
	evidencetest.WriteTree(t, root, map[string]string{
		fmt.Sprintf("%d/task/%d/status", p.pid, p.pid):    tracer,
		fmt.Sprintf("%d/stat", p.pid):                     line,
		fmt.Sprintf("%d/status", p.pid):                   fmt.Sprintf("Uid:\t%d\t0\t0\t0\nNSpid:\t%d\n", p.uid, cmp.Or(p.nsPID, 7)) + tracer + "SigPnd:\t" + p.pending + "\nShdPnd:\t0000000000000000\n",
		fmt.Sprintf("%d/cgroup", p.pid):                   "0::/\n",
		fmt.Sprintf("%d/task/%d/stat", p.pid, p.pid):      line,
		fmt.Sprintf("%d/task/%d/schedstat", p.pid, p.pid): "1 1 1\n",
		fmt.Sprintf("%d/task/%d/syscall", p.pid, p.pid):   "202 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n",
		fmt.Sprintf("%d/task/%d/wchan", p.pid, p.pid):     "rpc_wait_bit_killable",
		fmt.Sprintf("%d/fd/.keep", p.pid):                 "",
		fmt.Sprintf("%d/cmdline", p.pid):                  strings.Join(p.arguments, "\x00") + "\x00",
		fmt.Sprintf("%d/ns/.keep", p.pid):                 "",
	})
	must.Do(t, os.Symlink("pid:["+cmp.Or(p.pidNS, "1")+"]", namespace))
}

// TestKilled: a killed process that does not end is found after 10 s, with the member of its PID
// namespace or the tracer for which it waits; a process in D or traced that was not killed, and one of no container, is
// not.
func TestKilled(t *testing.T) {
	const kill, none = "0000000000000100", "0000000000000000"
	for _, tt := range []struct {
		name      string
		processes []process
		later     time.Duration
		culprit   int // 0: nothing is found
	}{
		{"in D with a SIGKILL", []process{{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill}}, 11 * time.Second, 30},
		{"in D", []process{{pid: 30, parent: 20, comm: "app", state: 'D', pending: none}}, time.Hour, 0},
		{"its namespace has a member in D", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none},
			{pid: 31, parent: 30, comm: "worker", state: 'S', pending: none},
			{pid: 32, parent: 31, comm: "worker", state: 'D', pending: kill},
		}, 11 * time.Second, 32},
		{"its child is held by a tracer", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none},
			{pid: 31, parent: 30, comm: "worker", state: 't', pending: kill, tracer: 50}, {pid: 50, parent: 1, comm: "strace", state: 'S'},
		}, 11 * time.Second, 50},
		{"a tracer has not reaped its child", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none},
			{pid: 31, parent: 30, comm: "worker", state: 'Z', tracer: 50}, {pid: 50, parent: 1, comm: "strace", state: 'S'},
		}, 11 * time.Second, 50},
		{"its namespace has one that its parent outside does not reap", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none, pidNS: "2", nsPID: 1},
			{pid: 31, parent: 50, comm: "probe", state: 'Z', pidNS: "2"}, {pid: 50, parent: 1, comm: "agent", state: 'T'},
		}, 11 * time.Second, 50},
		{"a process that was started in its namespace is in D", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none, pidNS: "2", nsPID: 1},
			{pid: 31, parent: 20, comm: "probe", state: 'D', pending: none, pidNS: "2"},
		}, 11 * time.Second, 31},
		{"it is not the first of the namespace", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none, pidNS: "2"},
			{pid: 31, parent: 20, comm: "probe", state: 'D', pending: none, pidNS: "2"},
		}, 11 * time.Second, 30},
		{"its end stops in a tracer", []process{
			{pid: 30, parent: 20, comm: "app", state: 't', pending: kill, tracer: 50}, {pid: 50, parent: 1, comm: "strace", state: 'S'},
		}, 11 * time.Second, 50},
		{"stopped by a tracer", []process{
			{pid: 30, parent: 20, comm: "app", state: 't', pending: none, tracer: 50}, {pid: 50, parent: 1, comm: "strace", state: 'S'},
		}, time.Hour, 0},
		{"its tracer has not reaped it", []process{
			{pid: 30, parent: 20, comm: "app", state: 'Z', tracer: 50}, {pid: 50, parent: 1, comm: "strace", state: 'S'},
		}, 11 * time.Second, 50},
		{"its shim has not reaped it", []process{{pid: 30, parent: 20, comm: "app", state: 'Z'}}, time.Hour, 0},
		{"a tracer in the container has not reaped another one", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S'}, {pid: 31, parent: 30, comm: "app", state: 'Z', tracer: 30},
		}, time.Hour, 0},
		{"it ends in time", []process{{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none}}, 9 * time.Second, 0},
		{"another user's shim", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', uid: 1000, arguments: shimOf(socket)},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"another containerd's shim", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: shimOf("/run/k3s/containerd/containerd.sock")},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"the shim of dockerd on the same containerd", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: append(shimOf(socket), "-namespace", "moby")},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"somebody else's", []process{{pid: 30, parent: 1, comm: "app", state: 'D', pending: kill}}, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			l := New(optionsOf(t, node(t, tt.processes), &now))
			l.Pass(t.Context())
			now = now.Add(tt.later)
			found := l.Pass(t.Context()).Findings
			culprit := 0
			for _, f := range found {
				if f.Reason != shimStuck || f.Chain.Links[0].PID != 20 {
					continue
				}
				for _, link := range f.Chain.Links[1:] {
					culprit = cmp.Or(link.PID, culprit) // the last process
				}
			}
			check.Equal(t, culprit, tt.culprit, "culprit: %+v", found)
		})
	}
}

// TestTableAge: in calm the process table may be 30 s old when a process is killed. While something may be
// owed a killed process that does not end is found soon after its limit, as the next one is once one was.
func TestTableAge(t *testing.T) {
	alive := []process{{pid: 30, parent: 20, comm: "app", state: 'S'}, {pid: 31, parent: 20, comm: "app", state: 'S'}}
	dying := process{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true}
	next := process{pid: 31, parent: 20, comm: "app", state: 'D', pending: "0000000000000100"}
	for _, tt := range []struct {
		name     string
		suspects bool
		before   []process // for long
		killed   process
		within   time.Duration
	}{
		{name: "calm", before: alive, killed: dying, within: tableAge + Interval + limit},
		{name: "a call is late", suspects: true, before: alive, killed: dying, within: SuspectInterval + limit + owedInterval},
		{name: "another one is owed", before: []process{dying, alive[1]}, killed: next, within: owedTableAge + limit + 2*owedInterval},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := node(t, tt.before)
				options := optionsOf(t, root, nil)
				options.Clock = time.Now
				options.Suspects = func() bool { return tt.suspects }
				l := New(options)
				interval := l.Pass(t.Context()).Next
				time.Sleep(time.Second)
				write(t, root, tt.killed)
				begun := time.Now()
				for !finds(l, tt.killed.pid, &interval) && time.Since(begun) < time.Hour {
					if tt.suspects {
						interval = min(interval, SuspectInterval)
					}
					time.Sleep(interval)
				}
				took := time.Since(begun)
				if took < limit || took > tt.within {
					t.Errorf("found after %s, want %s to %s", took, limit, tt.within)
				}
			})
		})
	}
}

// finds reports whether a pass finds a process that does not end, and sets the interval to the next one.
func finds(l *Ledger, pid int, interval *time.Duration) bool {
	result := l.Pass(context.Background())
	*interval = result.Next
	return slices.ContainsFunc(result.Findings, func(f facts.Finding) bool { return f.Chain.Links[1].PID == pid })
}

// TestLost: shims that live on are named once the runtime has not listed their pod as running for 30 s,
// over a restart of plegd too; not those whose pod was never listed. So are pods that are listed as running for 30 s after
// the end of their shim.
func TestLost(t *testing.T) {
	entry := map[string]*cri.Entry{"abc": {ID: "abc", SandboxID: "abc", State: cri.StateRunning}}
	other := map[string]*cri.Entry{"def": {ID: "def", State: cri.StateRunning}}
	ended := map[string]*cri.Entry{"abc": {ID: "abc", SandboxID: "abc", State: cri.StateExited}}
	container := map[string]*cri.Entry{"abc": ended["abc"], "c": {ID: "c", SandboxID: "abc", State: cri.StateRunning}}
	for _, tt := range []struct {
		name          string
		before, after map[string]*cri.Entry // the lists
		isNew         bool                  // it ran in a list between two passes alone, and its shim is in no table before
		ends          bool                  // the shim
		exec          bool                  // it serves an exec
		suspects      bool                  // a call is late when it ends
		state         byte                  // of the shim, once the lists change; 0 for asleep
		restarts      bool                  // plegd
		later         time.Duration
		want          bool
		wantEnded     bool // the shim
	}{
		{name: "listed", before: entry, after: entry, later: time.Hour},
		{name: "gone", before: entry, after: other, later: 31 * time.Second, want: true},
		{name: "all is gone", before: entry, after: map[string]*cri.Entry{}, later: 31 * time.Second, want: true},
		{name: "listed as ended", before: entry, after: ended, later: 31 * time.Second, want: true},
		{name: "listed as ended before plegd", before: ended, after: ended, later: 31 * time.Second, want: true},
		{name: "its sandbox ended and a container runs", before: entry, after: container, later: time.Hour},
		{name: "gone a moment ago", before: entry, after: other, later: 29 * time.Second},
		{name: "removed with its shim", before: entry, after: other, ends: true, later: time.Hour},
		{name: "its shim ends alone", before: entry, after: entry, ends: true, later: 31 * time.Second, wantEnded: true},
		{name: "its shim ended a moment ago", before: entry, after: entry, ends: true, later: 29 * time.Second},
		{name: "its shim ends, and it is listed as ended", before: entry, after: ended, ends: true, later: time.Hour},
		{name: "an exec ends", before: entry, after: entry, ends: true, exec: true, later: time.Hour},
		{name: "its shim ends while lists may be old", before: entry, after: entry, ends: true, suspects: true, later: time.Hour},
		{name: "its stopped shim cannot end", before: entry, after: other, state: 'T', later: time.Hour},
		{name: "its traced shim cannot end", before: entry, after: ended, state: 't', later: time.Hour},
		{name: "no list since", before: entry, later: time.Hour},
		{name: "never listed", before: other, after: other, later: time.Hour},
		{name: "started and gone between two passes", before: other, after: other, isNew: true, later: 31 * time.Second, want: true},
		{name: "all is gone that was started between two passes", before: nil, after: map[string]*cri.Entry{}, isNew: true, later: 31 * time.Second, want: true},
		{name: "started and removed with its shim between two passes", before: other, after: other, isNew: true, ends: true, later: time.Hour},
		{name: "plegd restarts", before: entry, after: other, restarts: true, later: 31 * time.Second, want: true},
		{name: "plegd restarts, listed again", before: entry, after: entry, restarts: true, later: time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			now := time.Now()
			listed := tt.before
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			var dropped []*cri.Entry
			options.TakeDropped = func() []*cri.Entry {
				defer func() { dropped = nil }()
				return dropped
			}
			shim := filepath.Join(root, "20")
			if tt.exec {
				write(t, root, process{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: append(shimOf(socket), "-e")})
			}
			options.Suspects = func() bool { return tt.suspects }
			if tt.isNew {
				must.Do(t, os.Rename(shim, shim+".new"))
			}
			l := New(options)
			l.Pass(t.Context())
			listed = tt.after
			if tt.isNew {
				dropped = []*cri.Entry{entry["abc"]}
				now = now.Add(time.Second) // it was dropped after the table was read
				l.Pass(t.Context())
				must.Do(t, os.Rename(shim+".new", shim))
				l.Table = proc.NewTable(root) // the process table is read by the system's clock
				l.Shims = family.NewShims(l.Table)
			}
			if tt.state != 0 {
				write(t, root, process{pid: 20, parent: 1, comm: "containerd-shim", state: tt.state, arguments: shimOf(socket)})
			}
			l.Pass(t.Context())
			if tt.ends {
				must.Do(t, os.RemoveAll(shim))
				l.Table = proc.NewTable(root)
				l.Shims = family.NewShims(l.Table)
				l.Pass(t.Context())
			}
			if (tt.want || tt.wantEnded) && !tt.restarts {
				now = now.Add(idleLimit - time.Second)
				if next := l.Pass(t.Context()).Next; next > owedInterval {
					t.Errorf("the next pass is after %s, a second before the limit", next)
				}
			}
			if tt.restarts {
				now = now.Add(limit)
				l.Pass(t.Context())
				options.Begun = l.Ages()
				l = New(options)
				l.Pass(t.Context())
			}
			now = now.Add(tt.later)
			found := l.Pass(t.Context()).Findings
			want := ""
			switch {
			case tt.want:
				want = podsLost + " 20 abc"
			case tt.wantEnded:
				want = shimStuck + " 0 abc"
			}
			got := ""
			for _, f := range found {
				got += fmt.Sprintf("%s %d %s", f.Reason, f.Chain.Culprit().PID, f.Chain.Culprit().RuntimeID)
			}
			check.Equal(t, got, want, "%+v", found)
		})
	}
}

// TestStarts: starts that fail at once are found by what comes and goes in a directory of starts, whatever its name, until a
// pod or container is listed; not those that may be the retries of one pod, nor while others succeed.
func TestStarts(t *testing.T) {
	const shared = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n8 1 0:2 / /run rw - tmpfs tmpfs rw\n"
	const bundle = "9 8 0:3 / /run/containerd/task/k8s.io/abc/rootfs rw - overlay overlay rw\n"
	abc := &cri.Entry{ID: "abc", State: cri.StateRunning}
	for _, tt := range []struct {
		name, mounts string
		dir          string
		every        time.Duration // 0: SuspectInterval
		isLate       bool          // each second pass comes just before the next one
		stays        bool          // what comes
		isListed     bool          // too
		isQuiet      bool          // nothing comes
		isEmpty      bool          // no list has an entry
		daemon       int           // behind the runtime
		isKnown      bool          // by the runtime, until it is removed before the next list
		isSlow       bool          // plegd, on a node without a CPU that is free
		want         bool
		succeeds     bool // a start, in the end
	}{
		{name: "bundles", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", want: true, succeeds: true},
		{name: "network namespaces", mounts: shared, dir: "run/netns", want: true},
		{name: "network namespaces, and nothing was ever listed", mounts: shared, dir: "run/netns", isEmpty: true, want: true},
		{name: "on a disk", mounts: strings.Replace(shared, "tmpfs tmpfs", "xfs /dev/sdb", 1) + bundle, dir: "run/containerd/task/k8s.io"},
		{name: "of what is not listed", mounts: shared + strings.Replace(bundle, "abc", "def", 1), dir: "run/containerd/task/k8s.io"},
		{name: "one pod is started again and again", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", every: 12 * time.Second},
		{name: "one pod is started again and again, and passes come late", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", every: 12 * time.Second, isLate: true},
		{name: "others come and stay", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", stays: true},
		{name: "others are listed for a moment", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", isListed: true},
		{name: "nothing comes", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", isQuiet: true},
		{name: "behind cri-dockerd", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", daemon: 20},
		{name: "pods live for less than the time between two lists", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", isKnown: true},
		{name: "a pod may live for less than the time between two looks", mounts: shared + bundle, dir: "run/containerd/task/k8s.io", isSlow: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			dir := filepath.Join(root, "10/root", tt.dir)
			evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": tt.mounts, "10/root/" + tt.dir + "/abc/.keep": ""})
			now := time.Now()
			listed := map[string]*cri.Entry{"abc": abc}
			if tt.isEmpty {
				listed = map[string]*cri.Entry{}
			}
			options := optionsOf(t, root, &now)
			options.PIDs = func() []int { return []int{10, tt.daemon} }
			options.Listed = func() map[string]*cri.Entry { return listed }
			watched := 0
			options.Sleep = func(context.Context, time.Duration) bool { // the watched start: its entry is there for some looks
				place := filepath.Join(dir, "watched")
				if tt.isSlow {
					now = now.Add(watchGap + time.Millisecond)
				}
				switch watched++; watched {
				case 2:
					must.Do(t, os.Mkdir(place, 0o700))
					must.Do(t, os.Chtimes(dir, now.Add(time.Millisecond), now.Add(time.Millisecond)))
				case 5:
					must.Do(t, os.Remove(place))
					must.Do(t, os.Chtimes(dir, now, now))
				}
				return true
			}
			options.HasBegun = func(_ context.Context, e *cri.Entry) bool { return tt.isKnown && e.ID == "watched" && !e.Sandbox }
			l := New(options)
			l.Pass(t.Context())
			for i := range 2*failedStarts + 1 {
				now = now.Add(cmp.Or(tt.every, SuspectInterval))
				id := fmt.Sprint("new", i)
				if tt.stays {
					must.Do(t, os.Mkdir(filepath.Join(dir, id), 0o700))
				}
				if tt.isListed {
					listed = map[string]*cri.Entry{"abc": abc, id: abc}
				}
				if !tt.isQuiet {
					must.Do(t, os.Chtimes(dir, now, now)) // two changes within a tick of the kernel's clock have one time
				}
				late := time.Duration(0)
				if tt.isLate && i%2 == 0 {
					late = 10 * time.Second
				}
				now = now.Add(late)
				l.Pass(t.Context())
				now = now.Add(-late)
			}
			result := l.Pass(t.Context())
			found := result.Findings
			isNamed := len(found) == 1 && found[0].Reason == podStartsFailing && found[0].Chain.Culprit().PID == 10
			if isNamed != tt.want || !tt.want && len(found) > 0 {
				t.Fatalf("%+v, want %t", found, tt.want)
			}
			if !tt.want {
				return
			}
			evidence := found[0].Chain.Culprit().Evidence
			check.Equal(t, strings.Contains(evidence, "at least 3 starts failed since "+found[0].Since.UTC().Format("15:04:05")), true, "says what was seen: %s", evidence)
			check.Equal(t, result.Next, SuspectInterval, "the next pass")
			options.Recalled = l.Memory()
			again := New(options).Pass(t.Context()).Findings
			check.Equal(t, len(again), 1, "findings after a restart of plegd")
			check.Equal(t, again[0].Since, found[0].Since, "their begin after a restart of plegd")
			options.Recalled.Runtime.Start++
			check.Equal(t, len(New(options).Pass(t.Context()).Findings), 0, "findings of another runtime")
			now = now.Add(startsOver)
			check.Equal(t, len(l.Pass(t.Context()).Findings), 1, "findings before the starts are over")
			now = now.Add(time.Second)
			if tt.succeeds {
				now = now.Add(-startsOver)
				listed = map[string]*cri.Entry{"abc": abc, "def": abc}
			}
			after := l.Pass(t.Context())
			check.Equal(t, len(after.Findings), 0, "findings once a start succeeds, or none fails for long")
			check.Equal(t, after.Next, Interval, "the next pass by then")
		})
	}
}

// TestStartsUnderWay: a start that fails is seen by an entry that has gone, also where the next one has come by then. Those
// that may be the retries of one pod do not count, however long each takes, nor what is removed once starts succeed.
func TestStartsUnderWay(t *testing.T) {
	for _, tt := range []struct {
		name        string
		takes, rest time.Duration // each start, and between two of them
		isListed    bool          // what each starts, by the name of its entry and before
		want        bool
	}{
		{name: "short starts of several pods", takes: 2 * time.Second, rest: time.Second, want: true},
		{name: "long starts of several pods", takes: 11 * time.Second, rest: 2 * time.Second, want: true},
		{name: "long starts of one pod", takes: 12 * time.Second, rest: 10 * time.Second},
		{name: "short starts of one pod", takes: 2 * time.Second, rest: 10 * time.Second},
		{name: "containers that end soon", takes: 11 * time.Second, rest: 2 * time.Second, isListed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": "1 0 0:2 / / rw - tmpfs tmpfs rw\n"})
			dir := filepath.Join(root, "10/root/run/netns")
			must.Do(t, os.MkdirAll(dir, 0o755))
			begin := time.Now().Truncate(time.Second)
			now := begin
			listed := map[string]*cri.Entry{}
			for i := range 20 {
				id := fmt.Sprint("cni-", i)
				if tt.isListed {
					listed[id] = &cri.Entry{ID: id, State: cri.StateCreated}
				}
			}
			seen := ""
			advance := func(d time.Duration) { // of the runtime, which makes one start after the other
				for range d / watchEvery {
					now = now.Add(watchEvery)
					every := tt.takes + tt.rest
					id := fmt.Sprint("cni-", int(now.Sub(begin)/every))
					isThere := now.Sub(begin)%every < tt.takes
					if isThere == (seen == id) {
						continue
					}
					if isThere {
						must.Do(t, os.Mkdir(filepath.Join(dir, id), 0o700))
						seen = id
					} else {
						must.Do(t, os.Remove(filepath.Join(dir, id)))
						seen = ""
					}
					must.Do(t, os.Chtimes(dir, now, now))
				}
			}
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			options.Sleep = func(_ context.Context, d time.Duration) bool { advance(d); return true }
			l := New(options)
			isNamed := false
			for now.Sub(begin) < 3*time.Minute {
				result := l.Pass(t.Context())
				isNamed = isNamed || len(result.Findings) > 0
				advance(result.Next)
			}
			check.Equal(t, isNamed, tt.want, "a finding")
		})
	}
}

// TestEntriesThatStayed: what goes after it was there for long is no start that fails at once.
func TestEntriesThatStayed(t *testing.T) {
	for stayed, want := range map[time.Duration]int{startsOver / 2: 4, startsOver: 0} {
		root := node(t, nil)
		evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": "1 0 0:2 / / rw - tmpfs tmpfs rw\n"})
		dir := filepath.Join(root, "10/root/run/netns")
		must.Do(t, os.MkdirAll(dir, 0o755))
		now := time.Now()
		options := optionsOf(t, root, &now)
		options.Listed = func() map[string]*cri.Entry { return map[string]*cri.Entry{} }
		l := New(options)
		l.Pass(t.Context())
		pass := func(change func(string) error, i int) {
			must.Do(t, change(filepath.Join(dir, fmt.Sprint(i))))
			must.Do(t, os.Chtimes(dir, now, now))
			l.Pass(t.Context())
			now = now.Add(time.Second)
		}
		l.Pass(t.Context())
		for i := range 5 {
			pass(func(place string) error { return os.Mkdir(place, 0o700) }, i)
		}
		now = now.Add(stayed)
		for i := range 5 {
			pass(os.Remove, i)
		}
		check.Equal(t, l.started.failed, want, "failed starts after %s", stayed)
	}
}

// TestUnreadySandboxes: starts fail where sandboxes of several pods are listed that were never ready and stay so; not where
// they are one pod's, have a container, or become ready, nor while another start succeeds.
func TestUnreadySandboxes(t *testing.T) {
	now := time.Now()
	age := time.Duration(0)
	hasNoAge := false
	sandbox := func(id, pod string, state cri.State) *cri.Entry {
		e := &cri.Entry{ID: id, SandboxID: id, PodUID: pod, Sandbox: true, State: state, CreatedAt: now.Add(-age).UnixNano()}
		if hasNoAge {
			e.CreatedAt = 0
		}
		return e
	}
	for _, tt := range []struct {
		name         string
		isOnePod     bool
		hasContainer bool
		isOld        bool
		hasNoAge     bool
		turnsReady   bool
		another      bool
		want         int
	}{
		{name: "of several pods", want: 1},
		{name: "of one pod", isOnePod: true},
		{name: "with containers", hasContainer: true},
		{name: "of before", isOld: true},
		{name: "whose age the runtime does not say", hasNoAge: true, want: 1},
		{name: "that are ready in the end", turnsReady: true},
		{name: "beside one that is ready", another: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hasNoAge = tt.hasNoAge
			age = 0
			if tt.isOld {
				age = time.Hour
			}
			listed := map[string]*cri.Entry{}
			options := optionsOf(t, node(t, nil), &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			l := New(options)
			l.Pass(t.Context())
			for i := range failedStarts + 2 {
				now = now.Add(SuspectInterval)
				listed = maps.Clone(listed)
				id := fmt.Sprint("s", i)
				pod := id
				if tt.isOnePod {
					pod = "pod"
				}
				listed[id] = sandbox(id, pod, cri.StateExited)
				if tt.hasContainer {
					listed["c"+id] = &cri.Entry{ID: "c" + id, SandboxID: id, PodUID: pod, State: cri.StateExited}
				}
				if tt.turnsReady && i > 0 {
					earlier := fmt.Sprint("s", i-1)
					listed[earlier] = sandbox(earlier, earlier, cri.StateRunning)
				}
				if tt.another && i == failedStarts {
					listed["other"] = sandbox("other", "other", cri.StateRunning)
				}
				l.Pass(t.Context())
			}
			found := l.Pass(t.Context()).Findings
			check.Equal(t, len(found), tt.want, "%+v", found)
			if len(found) > 0 {
				evidence := found[0].Chain.Culprit().Evidence
				check.Equal(t, strings.Contains(evidence, "never ready"), true, "%s", evidence)
			}
		})
	}
}

// TestGoneServer: a server to which the runtime was connected and that has ended is owed, also after a restart of plegd, and
// not to another runtime.
func TestGoneServer(t *testing.T) {
	const name = "/run/snapshotter.sock"
	now := time.Now()
	options := optionsOf(t, node(t, nil), &now)
	connected := &dump{byInode: map[uint32]proc.Socket{
		1: {Inode: 1, Kind: unix.SOCK_STREAM, State: proc.Established, Peer: 2},
		2: {Inode: 2, Kind: unix.SOCK_STREAM, State: proc.Established, Peer: 1, Name: name},
		3: {Inode: 3, Kind: unix.SOCK_STREAM, State: proc.Listening, Name: name},
	}}
	ended := &dump{byInode: map[uint32]proc.Socket{}}
	look := func(l *Ledger, d *dump) (owed int) {
		runtime := proc.ID{PID: 10, Start: 100}
		p := &pass{Ledger: l, moment: now, pids: []int{10}, hops: []proc.ID{runtime}, seen: map[identity]bool{}}
		if !l.passed {
			p.recall()
		}
		p.goneServers(d, map[proc.ID]descriptors{runtime: {sockets: map[uint32]bool{1: true}}})
		p.publishMemory()
		return len(p.seen)
	}
	l := New(options)
	check.Equal(t, look(l, connected), 0, "servers that have ended, of one that listens")
	options.Recalled = l.Memory() // plegd is killed before the server is
	check.Equal(t, look(l, ended), 1, "servers that have ended")
	check.Equal(t, look(New(options), ended), 1, "servers that have ended before plegd has started again")
	options.Recalled.Runtime.Start++
	check.Equal(t, look(New(options), ended), 0, "servers of the runtime before")
}

// TestUnknownRuntime: the first pass follows as soon as the process is known: what was there in it may be so by design.
func TestUnknownRuntime(t *testing.T) {
	now := time.Now()
	options := optionsOf(t, node(t, nil), &now)
	known := options.PIDs
	options.PIDs = func() []int { return []int{0, 0} }
	l := New(options)
	check.Equal(t, l.Pass(t.Context()).Next, soon, "the next pass, while the process is not known")
	l.PIDs = known
	check.Equal(t, l.Pass(t.Context()).Next, Interval, "the next pass")
}

// TestBusy: the path that the runtime cannot remove, by the error of a call, leads to the mount at that
// path, else to the process that has a file there open.
func TestBusy(t *testing.T) {
	const failing = `rpc error: code = Unknown desc = check netns closed: unlinkat /var/run/netns/cni-1: device or resource busy`
	for _, tt := range []struct {
		name, failure, mount, link string
		culprit                    facts.Link
	}{
		{name: "a mount", failure: failing, mount: "9 1 8:1 / /run/netns/cni-1 rw - ext4 /dev/sda1 rw\n",
			culprit: facts.Link{Kind: facts.KindMount, Name: "/run/netns/cni-1"}},
		{name: "an open file", failure: failing, link: "/run/netns/cni-1/file", culprit: facts.Link{Kind: facts.KindProcess, PID: 30}},
		{name: "an open file beside it", failure: failing, link: "/run/netns/cni-10"},
		{name: "another error", failure: "unlinkat /run/netns/cni-1: permission denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, []process{{pid: 30, parent: 1, comm: "app", state: 'S'}})
			evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": tt.mount})
			if tt.link != "" {
				must.Do(t, os.Symlink(tt.link, filepath.Join(root, "30/fd/4")))
			}
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.Failures = func() []string { return []string{tt.failure} }
			l := New(options)
			l.Pass(t.Context())
			now = now.Add(limit)
			found := l.Pass(t.Context()).Findings
			if tt.culprit.Kind == "" {
				check.Equal(t, len(found), 0, "%+v", found)
				return
			}
			culprit := facts.Link{}
			if len(found) == 1 && found[0].Reason == inspectionStall && len(found[0].Chain.Links) == 2 {
				culprit = *found[0].Chain.Culprit()
			}
			if culprit.Kind != tt.culprit.Kind || culprit.PID != tt.culprit.PID || !strings.HasPrefix(culprit.Name, tt.culprit.Name) {
				t.Errorf("%+v", found)
			}
		})
	}
}

// TestRequests: a server that leaves a request unanswered is named, be it a process of the node or elsewhere; not one
// that sends slowly, nor a connection that is idle.
func TestRequests(t *testing.T) {
	const moment = 10 * time.Millisecond
	waiting := map[string]*cri.Entry{"pod": {Sandbox: true, ID: "pod", SandboxID: "pod", State: cri.StateRunning, CreatedAt: 1}}
	started := map[string]*cri.Entry{"pod": waiting["pod"], "c": {ID: "c", SandboxID: "pod", State: cri.StateCreated}}
	for _, tt := range []struct {
		name           string
		sent, received time.Duration // ago
		bytes          uint64
		unread         uint32
		ahead          bool // connected, and nothing was sent
		listed         map[string]*cri.Entry
		before         bool // since before plegd
		elsewhere      bool // the server
		attempts       int  // to connect, none answered
		linear         int  // of the kernel: attempts that follow each other after a second
		want           bool
	}{
		{name: "no answer to four attempts to connect", attempts: 4, elsewhere: true, want: true},
		{name: "no answer to four attempts on this node", attempts: 4, want: true},
		{name: "no answer to three attempts to connect", attempts: 3, elsewhere: true},
		{name: "no answer to seven attempts, five after a second", attempts: 7, linear: 4, elsewhere: true, want: true},
		{name: "no answer to six attempts, five after a second", attempts: 6, linear: 4, elsewhere: true},
		{name: "the first request", sent: 21 * time.Second, received: 21 * time.Second, want: true},
		{name: "connected ahead of any request", sent: 99 * time.Second, received: 99 * time.Second, ahead: true, listed: waiting},
		{name: "a request, for a moment", sent: 19 * time.Second, received: 19 * time.Second},
		{name: "a later request", sent: 21 * time.Second, received: 50 * time.Second, bytes: 9, want: true},
		{name: "a request before plegd", sent: 21 * time.Second, received: 50 * time.Second, bytes: 9, before: true, want: true},
		{name: "a server elsewhere", sent: 21 * time.Second, received: 21 * time.Second, elsewhere: true, want: true},
		{name: "an answer that comes slowly", sent: time.Hour, received: 5 * time.Second, bytes: 9},
		{name: "idle after an answer", sent: 99*time.Second - moment, received: 99 * time.Second, bytes: 9, listed: waiting},
		{name: "silent, and a pod waits", sent: 101 * time.Second, received: 101*time.Second - moment, bytes: 9, listed: waiting, want: true},
		{name: "silent since before plegd", sent: 101 * time.Second, received: 101 * time.Second, bytes: 9, listed: waiting, before: true},
		{name: "silent, and all pods run", sent: time.Hour, received: time.Hour, bytes: 9, listed: started},
		{name: "the answer is not read", sent: 21 * time.Second, received: 50 * time.Second, bytes: 9, unread: 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, []process{{pid: 30, parent: 1, comm: "registry", state: 'S'}})
			must.Do(t, os.Symlink("socket:[777]", filepath.Join(root, "10/fd/3")))
			must.Do(t, os.Symlink("socket:[888]", filepath.Join(root, "30/fd/3")))
			evidencetest.WriteTree(t, root, map[string]string{"sys/net/ipv4/tcp_syn_linear_timeouts": fmt.Sprint(tt.linear)})
			local := netip.MustParseAddrPort("10.0.0.1:40000")
			remote := netip.MustParseAddrPort("10.0.0.1:5000")
			client := proc.TCPSocket{State: proc.Established, Local: local, Remote: remote, Inode: 777, Cookie: 1}
			server := uint32(888)
			want := facts.Link{Kind: facts.KindProcess, Name: "registry", PID: 30}
			if tt.elsewhere {
				server = 0
				want = facts.Link{Kind: facts.KindNode, Name: remote.String()}
			}
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return tt.listed }
			l := New(options)
			l.readTCP = func(_ context.Context, owned map[uint32]bool) (proc.TCPSockets, error) {
				check.Equal(t, owned[client.Inode], true, "the runtime has the socket")
				return proc.TCPSockets{Clients: []proc.TCPClient{{TCPSocket: client, Server: server}}}, nil
			}
			l.readTimes = func(_ context.Context, s proc.TCPSocket) (proc.TCPSocket, error) {
				s.Unread = tt.unread
				s.LastSent = tt.sent
				s.LastReceived = tt.received
				s.Received = tt.bytes
				s.Acked = 100
				if tt.attempts > 0 {
					s.State = proc.SynSent
					s.Retransmits = tt.attempts
				}
				if tt.ahead {
					s.Acked = ackedConnect
				}
				return s, nil
			}
			l.passed = !tt.before
			l.Pass(t.Context())
			found := l.Pass(t.Context()).Findings
			named := len(found) == 1 && found[0].Reason == peerStuck && found[0].Chain.Links[1].IsSame(&want)
			if named != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
		})
	}
}

// TestLastedFor: the times at which the kernel repeats an attempt to connect, without equal ones and with four.
func TestLastedFor(t *testing.T) {
	for linear, want := range map[int][]int{
		0: {0, 1, 3, 7, 15, 31},
		4: {0, 1, 2, 3, 4, 5, 7, 11, 19},
	} {
		for repeated, seconds := range want {
			check.Equal(t, lastedFor(repeated, linear), time.Duration(seconds)*time.Second, "repeated %d times, %d of them linear", repeated, linear)
		}
	}
}

// TestUnread: what a pass cannot read is said, as something owed may hide there, and no longer by a
// pass that reads it.
func TestUnread(t *testing.T) {
	dying := process{pid: 30, parent: 20, comm: "app", state: 'D', pending: "0000000000000100"}
	for _, tt := range []struct{ path, part string }{
		{path: "10/fd", part: descriptorsOfRuntime},
		{path: "20/status", part: family.UnreadShims},
		{path: "20/cmdline", part: family.UnreadShims},
		{path: "30/status", part: pendingSignals},
	} {
		t.Run(tt.path, func(t *testing.T) {
			root := node(t, []process{dying})
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			path := filepath.Join(root, tt.path)
			must.Do(t, os.Rename(path, path+".kept"))
			must.Do(t, os.Symlink(filepath.Base(path), path)) // a loop cannot be read, by root either
			unread := l.Pass(t.Context()).Unread
			_, said := unread[tt.part]
			check.Equal(t, said, true, "%q is said: %v", tt.part, unread)
			now = now.Add(idleLimit) // the descriptors are due, the process table is not
			unread = l.Pass(t.Context()).Unread
			_, said = unread[tt.part]
			check.Equal(t, said, true, "%q is said again: %v", tt.part, unread)
			must.Do(t, os.Remove(path))
			must.Do(t, os.Rename(path+".kept", path))
			now = now.Add(time.Hour)
			l.Table = proc.NewTable(root) // the process table is read by the system's clock
			l.Shims = family.NewShims(l.Table)
			_, said = l.Pass(t.Context()).Unread[tt.part]
			check.Equal(t, said, false, "%q is said once it can be read", tt.part)
		})
	}
}

// BenchmarkPass is the cost of a pass while nothing is owed, with this process as the runtime.
func BenchmarkPass(b *testing.B) {
	table := proc.NewTable("/proc")
	l := New(Options{
		Table: table, Shims: family.NewShims(table), SysFS: "/sys", PIDs: func() []int { return []int{os.Getpid()} }, Sockets: func() []string { return nil },
		Listed: func() map[string]*cri.Entry { return nil }, Failures: func() []string { return nil },
		StartsWait: func() time.Time { return time.Time{} }, StartsFail: func() time.Time { return time.Time{} },
		Suspects: func() bool { return false }, TakeDropped: func() []*cri.Entry { return nil },
	})
	for b.Loop() {
		l.Pass(b.Context())
	}
}

// TestDescriptorsAge: the runtime's descriptors are read again in calm once two passes count another number, and after a while
// even if it is the same.
func TestDescriptorsAge(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "proc") //nolint:usetesting // a size that counts, as of /proc/PID/fd
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	files := node(t, nil)
	must.Do(t, os.CopyFS(root, os.DirFS(files)))
	fds := filepath.Join(root, "10/fd")
	must.Do(t, os.Symlink("socket:[777]", filepath.Join(fds, "3")))
	now := time.Now()
	l := New(optionsOf(t, root, &now))
	var owned map[uint32]bool
	connections := map[uint32]bool{111: true} // one of another process
	l.readTCP = func(_ context.Context, sockets map[uint32]bool) (proc.TCPSockets, error) {
		owned = sockets
		others := maps.Clone(connections)
		maps.DeleteFunc(others, func(inode uint32, _ bool) bool { return sockets[inode] })
		return proc.TCPSockets{Others: others}, nil
	}
	next := func(after time.Duration, inode uint32, want bool, what string) {
		t.Helper()
		now = now.Add(after)
		l.Pass(t.Context())
		check.Equal(t, owned[inode], want, "%s: %v", what, owned)
	}
	next(0, 777, true, "at first")
	must.Do(t, os.Symlink("socket:[888]", filepath.Join(fds, "4")))
	next(Interval, 888, false, "for a moment, as plegd's own connection is there")
	next(Interval, 888, true, "it stays")
	must.Do(t, os.Remove(filepath.Join(fds, "4")))
	must.Do(t, os.Symlink("socket:[999]", filepath.Join(fds, "4")))
	next(Interval, 999, false, "as many")
	next(idleLimit, 999, true, "as many, after a while")
	must.Do(t, os.Symlink("socket:[555]", filepath.Join(fds, "5")))
	next(Interval, 555, false, "one more")
	must.Do(t, os.Symlink("socket:[556]", filepath.Join(fds, "6")))
	next(Interval, 555, true, "one more, and plegd's own connection")
	next(idleLimit, 556, true, "after a while")
	must.Do(t, os.Remove(filepath.Join(fds, "6")))
	must.Do(t, os.Symlink("socket:[222]", filepath.Join(fds, "6")))
	connections[222] = true
	next(Interval, 222, false, "as many, with a connection that is new")
	next(Interval, 222, true, "as many, with a connection that stays")
	must.Do(t, os.Remove(filepath.Join(fds, "6")))
	must.Do(t, os.Symlink("socket:[333]", filepath.Join(fds, "6")))
	next(Interval, 333, false, "as many, and no new connection: that of another process is known")
	l.PIDs = func() []int { return []int{20} }
	next(Interval, 999, false, "of another runtime")
	check.Equal(t, len(l.ofHops), 1, "hops that are kept")
}

// TestUnreadStream: a client that does not read a stream of the runtime's is a reason only while something is late and no
// pod or container comes or goes. A peer at another socket may be waited for.
func TestUnreadStream(t *testing.T) {
	for name, tt := range map[string]struct {
		isClients, isLate bool
		change            string // of the lists, just before: "new" or "gone"
		want, isUrgent    bool
	}{
		"a client, and nothing is late":                {isClients: true},
		"a client, and a call is late":                 {isClients: true, isLate: true, want: true},
		"a client, a call is late, and a pod comes":    {isClients: true, isLate: true, change: "new"},
		"a client, a call is late, and a pod is gone":  {isClients: true, isLate: true, change: "gone"},
		"a plugin, nothing is late, and a pod appears": {change: "new", want: true, isUrgent: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			listed := map[string]*cri.Entry{"abc": {ID: "abc"}}
			options := optionsOf(t, node(t, []process{{pid: 30, parent: 1, comm: "ctr", state: 'T'}}), &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			options.Suspects = func() bool { return tt.isLate }
			l := New(options)
			l.Pass(t.Context())
			now = now.Add(time.Minute)
			switch tt.change {
			case "new":
				listed = map[string]*cri.Entry{"abc": {ID: "abc"}, "def": {ID: "def"}}
			case "gone":
				listed = map[string]*cri.Entry{}
			}
			p := &pass{Ledger: l, moment: now, pids: l.PIDs(), hops: l.liveHops(l.livePIDs()), seen: map[identity]bool{}}
			p.starts(t.Context())
			o := p.keep(obligation{identity: identity{kind: unreadBytes, id: 7}, waiter: 10, debtor: 30, isClients: tt.isClients})
			o.begun = now.Add(-time.Minute)
			found := p.findings(t.Context())
			isNamed := len(found) == 1 && found[0].Reason == peerStuck && found[0].Chain.Culprit().PID == 30
			if isNamed != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
			check.Equal(t, p.isUrgent(), tt.isUrgent, "looks more often")
		})
	}
}
