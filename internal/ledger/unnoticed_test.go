package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestUnnoticed: a process of a shim's ends that had one for each entry that the runtime lists as running, and the lists do
// not change.
func TestUnnoticed(t *testing.T) {
	sandbox := &cri.Entry{ID: "abc", SandboxID: "abc", Sandbox: true, State: cri.StateRunning, PodNamespace: "shop", PodName: "api"}
	container := &cri.Entry{ID: "def", SandboxID: "abc", Name: "main", State: cri.StateRunning, PodNamespace: "shop", PodName: "api"}
	sidecar := &cri.Entry{ID: "ghi", SandboxID: "abc", Name: "log", State: cri.StateRunning, PodNamespace: "shop", PodName: "api"}
	created := &cri.Entry{ID: "ghi", SandboxID: "abc", Name: "log", State: cri.StateCreated}
	exited := &cri.Entry{ID: "def", SandboxID: "abc", State: cri.StateExited}
	pod := []*cri.Entry{sandbox, container}
	const unknown, found = "ShimStuck shim 0 abc", "ShimStuck shim 0 def"
	for _, tt := range []struct {
		name          string
		before, after []*cri.Entry // the lists
		ends          []int        // the processes, 30 of the sandbox and 31 of the container
		starts        []int
		had           []int // of 30 and 31, those that never were
		suspects      bool
		shim          byte          // its state, 0 for asleep
		zombie        bool          // what has ended is not reaped
		traced        bool          // the same, by a tracer
		groups        bool          // the cgroups show whose a process is
		age           time.Duration // of the lists
		later         time.Duration // 0 for 31 s
		restarts      bool          // plegd
		want          string
	}{
		{name: "all live", before: pod, after: pod},
		{name: "a container's", before: pod, after: pod, ends: []int{31}, want: unknown},
		{name: "a container's, by its cgroup", before: pod, after: pod, ends: []int{31}, groups: true, want: found},
		{name: "a moment ago", before: pod, after: pod, ends: []int{31}, later: 29 * time.Second},
		{name: "while the kubelet ends the pod", before: pod, after: pod, ends: []int{31}, suspects: true, want: unknown},
		{name: "the lists are old", before: pod, after: pod, ends: []int{31}, age: 2 * time.Second},
		{name: "listed as ended", before: pod, after: []*cri.Entry{sandbox, exited}, ends: []int{31}},
		{name: "of a removed container", before: pod, after: []*cri.Entry{sandbox}, ends: []int{31}},
		{name: "an exec ends", before: pod, after: pod, starts: []int{32}},
		{name: "another container is created", before: pod, after: []*cri.Entry{sandbox, container, created}},
		{name: "another one has not had a process", before: pod, after: []*cri.Entry{sandbox, container, sidecar}},
		{name: "a sandboxed runtime", before: []*cri.Entry{sandbox, container, sidecar}, after: []*cri.Entry{sandbox, container, sidecar}, ends: []int{31}},
		{name: "a shim without processes", before: pod, after: pod, had: []int{30, 31}},
		{name: "its shim is stopped", before: pod, after: pod, ends: []int{31}, shim: 'T'},
		{name: "a tracer keeps it", before: pod, after: pod, ends: []int{31}, traced: true, want: "ShimStuck kernel 0 "},
		{name: "its shim does not reap it", before: pod, after: pod, zombie: true, want: unknown},
		{name: "plegd restarts", before: pod, after: pod, ends: []int{31}, restarts: true, want: unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			now := time.Now()
			ofSandbox := process{pid: 30, parent: 20, comm: "pause", state: 'S'}
			ofContainer := process{pid: 31, parent: 20, comm: "app", state: 'S'}
			write(t, root, ofSandbox)
			write(t, root, ofContainer)
			for _, pid := range tt.had {
				must.Do(t, os.RemoveAll(filepath.Join(root, fmt.Sprint(pid))))
			}
			if tt.groups {
				evidencetest.WriteTree(t, root, map[string]string{"30/cgroup": "0::/kubepods/cri-containerd-abc.scope\n", "31/cgroup": "0::/kubepods/cri-containerd-def.scope\n"})
			}
			listed := byID(tt.before)
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			options.ListedAt = func() time.Time { return now.Add(-tt.age) }
			options.Suspects = func() bool { return tt.suspects }
			l := New(options)
			l.Pass(t.Context())
			listed = byID(tt.after)
			for _, pid := range tt.ends {
				must.Do(t, os.RemoveAll(filepath.Join(root, fmt.Sprint(pid))))
			}
			for _, pid := range tt.starts {
				write(t, root, process{pid: pid, parent: 20, comm: "sh", state: 'S'})
			}
			if tt.traced || tt.zombie {
				ofContainer.state = 'Z'
				write(t, root, ofContainer)
			}
			if tt.traced {
				ofContainer.tracer = 1
				write(t, root, ofContainer)
			}
			if tt.shim != 0 {
				write(t, root, process{pid: 20, parent: 1, comm: "containerd-shim", state: tt.shim, arguments: shimOf(socket)})
			}
			l.Table = proc.NewTable(root) // the process table is read by the system's clock
			l.Shims = family.NewShims(l.Table)
			l.Pass(t.Context())
			if tt.restarts {
				now = now.Add(limit)
				l.Pass(t.Context())
				options.Begun = l.Ages()
				options.Table = l.Table
				options.Shims = l.Shims
				l = New(options)
				l.Pass(t.Context())
			}
			if tt.later == 0 {
				tt.later = 31 * time.Second
			}
			now = now.Add(tt.later)
			got := ""
			result := l.Pass(t.Context())
			for _, f := range result.Findings {
				culprit := f.Chain.Culprit()
				got += fmt.Sprintf("%s %s %d %s", f.Reason, culprit.Kind, culprit.PID, culprit.RuntimeID)
			}
			check.Equal(t, got, tt.want, "%+v", result)
		})
	}
}

func byID(entries []*cri.Entry) map[string]*cri.Entry {
	out := map[string]*cri.Entry{}
	for _, e := range entries {
		out[e.ID] = e
	}
	return out
}

// TestUnnoticedIsLate: while a runtime takes note of some ends, as of many at once, it is merely late with the others.
func TestUnnoticedIsLate(t *testing.T) {
	root := node(t, nil)
	now := time.Now()
	options := optionsOf(t, root, &now)
	listed := map[string]*cri.Entry{"abc": {ID: "abc", SandboxID: "abc", Sandbox: true, State: cri.StateRunning}}
	for i := range 3 {
		id := fmt.Sprint("c", i)
		listed[id] = &cri.Entry{ID: id, SandboxID: "abc", State: cri.StateRunning}
		write(t, root, process{pid: 31 + i, parent: 20, comm: "app", state: 'S'})
	}
	write(t, root, process{pid: 30, parent: 20, comm: "pause", state: 'S'})
	options.Listed = func() map[string]*cri.Entry { return listed }
	l := New(options)
	l.Pass(t.Context())
	for i := range 3 {
		must.Do(t, os.RemoveAll(filepath.Join(root, fmt.Sprint(31+i))))
	}
	l.Table = proc.NewTable(root)
	l.Shims = family.NewShims(l.Table)
	l.Pass(t.Context())
	now = now.Add(20 * time.Second)
	listed = byID([]*cri.Entry{listed["abc"], listed["c0"], listed["c1"]})
	l.Pass(t.Context())
	now = now.Add(29 * time.Second)
	check.Equal(t, len(l.Pass(t.Context()).Findings), 0, "findings 29 s after it took note of one")
	now = now.Add(2 * time.Second)
	check.Equal(t, len(l.Pass(t.Context()).Findings), 1, "findings 31 s after it took note of one")
}

// TestIsSilent: a peer that merely sleeps counts at the second look, one that stands still at once.
func TestIsSilent(t *testing.T) {
	o := &obligation{}
	check.Equal(t, o.isSilent(&facts.Link{PID: 40, State: facts.LinkAsleep}), false, "one that sleeps")
	check.Equal(t, o.isSilent(&facts.Link{PID: 41, State: facts.LinkAsleep}), false, "another one that sleeps")
	check.Equal(t, o.isSilent(&facts.Link{PID: 41, State: facts.LinkAsleep}), true, "the same again")
	check.Equal(t, o.isSilent(&facts.Link{PID: 42, State: facts.LinkStopped}), true, "a stopped one")
}
