package ledger

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestResting: a child that may run for long, and has not run for 30 s, is named where what it waits for stands still; not
// where that may get on or is the runtime itself, as during a slow download, nor one whose work the runtime does not read.
func TestResting(t *testing.T) {
	for name, tt := range map[string]struct {
		behind    byte // the state of the process that it waits for
		comm      string
		output    string
		namespace string
		reads     bool // from the runtime, which is stopped
		runs      bool // meanwhile
		after     time.Duration
		want      bool
	}{
		"its child is stopped":            {behind: 'T', want: true},
		"its child is stopped, for 20 s":  {behind: 'T', after: 20 * time.Second},
		"its child sleeps":                {behind: 'S'},
		"its child is stopped, as it ran": {behind: 'T', runs: true},
		"it waits for the runtime":        {behind: 'T', reads: true},
		"it writes elsewhere":             {behind: 'T', output: "pipe:[6]"},
		"it is in a pod's network":        {behind: 'T', namespace: "net:[2]"},
		"it is an OCI runtime":            {behind: 'T', comm: "runc"},
	} {
		t.Run(name, func(t *testing.T) {
			comm := "ctd-decoder"
			arguments := []string{comm}
			if tt.comm != "" {
				comm = tt.comm
				arguments = []string{comm, "exec", "abc"}
			}
			root := node(t, []process{
				{pid: 30, parent: 10, comm: comm, state: 'S', arguments: arguments},
				{pid: 31, parent: 30, comm: "perl", state: tt.behind},
			})
			channel := "do_wait"
			call := unix.SYS_WAIT4
			fd := -1
			if tt.reads {
				channel = "pipe_read"
				call = unix.SYS_READ
				fd = 0
				write(t, root, process{pid: 10, parent: 1, comm: "containerd", state: 'T'})
			}
			evidencetest.WriteTree(t, root, map[string]string{
				"30/schedstat": "1 1 1\n", "31/schedstat": "1 1 1\n", "31/task/31/wchan": "futex_wait_queue",
				"30/task/30/wchan":   channel,
				"30/task/30/syscall": fmt.Sprintf("%d 0x%x 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n", call, uint64(fd)), //nolint:gosec // any child
				"10/fdinfo/5":        "flags:\t00\n", "10/fdinfo/6": "flags:\t01\n",
				"30/fdinfo/0": "flags:\t00\n", "30/fdinfo/1": "flags:\t01\n",
			})
			links := map[string]string{
				"10/fd/5": "pipe:[5]", "10/fd/6": "pipe:[7]", "30/fd/0": "pipe:[7]", "30/fd/1": "pipe:[5]", "10/ns/net": "net:[1]", "30/ns/net": "net:[1]",
			}
			if tt.output != "" {
				links["30/fd/1"] = tt.output
			}
			if tt.namespace != "" {
				links["30/ns/net"] = tt.namespace
			}
			for link, target := range links {
				must.Do(t, os.Symlink(target, filepath.Join(root, link)))
			}
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			l.Pass(t.Context())
			if tt.runs {
				evidencetest.WriteTree(t, root, map[string]string{"31/schedstat": "2 1 2\n"})
			}
			now = now.Add(idleLimit)
			if tt.after != 0 {
				now = now.Add(tt.after - idleLimit)
			}
			result := l.Pass(t.Context())
			found := result.Findings
			want := facts.Link{Kind: facts.KindHelper, Name: comm, PID: 30}
			named := len(found) == 1 && found[0].Reason == helperStuck && found[0].Chain.Links[1].IsSame(&want) && found[0].Chain.Culprit().PID == 31
			if named != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
			if result.Next != Interval {
				t.Errorf("the next pass is due after %s", result.Next)
			}
		})
	}
}

// TestStandingChild: a child that may run for long is named once it has stood still for a while, and no longer where it
// continues, runs in between, or is frozen with the runtime.
func TestStandingChild(t *testing.T) {
	for name, tt := range map[string]struct {
		state     byte
		arguments []string
		cgroup    string
		runtime   string // its cgroup
		runs      bool   // in between
		continues bool
		want      bool
	}{
		"stopped":                    {state: 'T', arguments: []string{"unpigz", "-d"}, want: true},
		"stopped, another one":       {state: 'T', arguments: []string{"zstd", "-d"}, want: true},
		"a stopped NRI plugin":       {state: 'T', arguments: []string{"/opt/nri/plugins/10-topology"}, want: true},
		"a stopped exec":             {state: 'T', arguments: []string{"runc", "exec", "id"}, want: true},
		"it continues":               {state: 'T', arguments: []string{"unpigz", "-d"}, continues: true},
		"dockerd's containerd":       {state: 'T', arguments: []string{"buildkitd"}},
		"a stopped shim":             {state: 'T', arguments: []string{"containerd-shim"}},
		"asleep":                     {state: 'S', arguments: []string{"unpigz", "-d"}},
		"blocked":                    {state: 'D', arguments: []string{"unpigz", "-d"}, want: true},
		"it waits for a disk":        {state: 'D', arguments: []string{"unpigz", "-d"}, runs: true},
		"frozen":                     {state: 'S', arguments: []string{"unpigz", "-d"}, cgroup: "/frozen", want: true},
		"frozen with the runtime":    {state: 'S', arguments: []string{"unpigz", "-d"}, cgroup: "/frozen", runtime: "/frozen"},
		"frozen with the runtime, D": {state: 'D', arguments: []string{"unpigz", "-d"}, cgroup: "/frozen", runtime: "/frozen"},
	} {
		t.Run(name, func(t *testing.T) {
			child := process{pid: 30, parent: 10, comm: filepath.Base(tt.arguments[0]), state: tt.state, arguments: tt.arguments}
			root := node(t, []process{child})
			now := time.Now()
			options := optionsOf(t, root, &now)
			evidencetest.WriteTree(t, options.SysFS, map[string]string{
				"fs/cgroup/cgroup.controllers": "cpu\n", "fs/cgroup/frozen/cgroup.events": "frozen 1\n",
			})
			evidencetest.WriteTree(t, root, map[string]string{
				"30/schedstat": "1 1 1\n", "30/cgroup": "0::" + cmp.Or(tt.cgroup, "/") + "\n", "10/cgroup": "0::" + cmp.Or(tt.runtime, "/") + "\n",
			})
			l := New(options)
			l.Pass(t.Context())
			if tt.runs {
				evidencetest.WriteTree(t, root, map[string]string{"30/schedstat": "2 1 2\n"})
			}
			if tt.continues {
				child.state = 'S'
				write(t, root, child)
			}
			now = now.Add(limit)
			found := l.Pass(t.Context()).Findings
			want := facts.Link{Kind: facts.KindHelper, Name: child.comm, PID: 30}
			named := len(found) == 1 && found[0].Reason == helperStuck && found[0].Chain.Links[1].IsSame(&want)
			if named != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
		})
	}
}
