package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestHangingStarts: a start that does not end is found by its entry, or by the kubelet's metrics, where its shim or the runtime
// leads to what stands still; not one that has begun or is there for long, nor where nothing stands still.
func TestHangingStarts(t *testing.T) {
	for name, tt := range map[string]struct {
		entry  string
		listed *cri.Entry // by the name of the entry
		waits  time.Duration
		state  byte // of the process for which the shim, or the runtime, waits
		ofShim bool
		// hasLock is set where nothing waits for the lock that the other process holds.
		hasLock bool
		after   time.Duration // 0 for limit
		reason  string        // "" for none
	}{
		"the shim waits":            {entry: "abc", state: 'T', ofShim: true, reason: shimStuck},
		"the runtime waits":         {entry: "xyz", state: 'T', reason: podStartsFailing},
		"by the metrics":            {waits: limit, state: 'T', reason: podStartsFailing},
		"for a short time":          {waits: limit / 2, after: limit / 4, state: 'T'},
		"for longer than any start": {waits: awaitedFor, state: 'T'},
		"no start is under way":     {state: 'T'},
		"a container is created":    {entry: "xyz", listed: &cri.Entry{ID: "xyz", State: cri.StateCreated}, state: 'T', reason: podStartsFailing},
		"a container runs":          {entry: "xyz", listed: &cri.Entry{ID: "xyz", State: cri.StateRunning}, state: 'T'},
		"a sandbox is listed":       {entry: "xyz", listed: &cri.Entry{ID: "xyz", Sandbox: true, State: cri.StateRunning}, state: 'T'},
		"the lock's holder sleeps":  {entry: "xyz", state: 'S', reason: podStartsFailing},
		"it waits for nothing":      {entry: "xyz", state: 'T', hasLock: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := node(t, []process{{pid: 50, parent: 1, comm: "holder", state: tt.state}})
			waiter := "10"
			if tt.ofShim {
				waiter = "20"
			}
			if tt.hasLock {
				waiter = "99"
			}
			evidencetest.WriteTree(t, root, map[string]string{
				"10/mountinfo": "1 0 0:2 / / rw - tmpfs tmpfs rw\n2 1 0:3 / /run/task/known/rootfs rw - overlay o rw\n", "50/task/50/wchan": "futex_wait_queue",
				"10/task/10/wchan": "futex_wait_queue", "20/task/20/wchan": "futex_wait_queue",
				"locks":       "1: FLOCK  ADVISORY  WRITE 50 fe:00:5678 0 EOF\n1: -> FLOCK  ADVISORY  WRITE " + waiter + " fe:00:5678 0 EOF\n",
				"50/fdinfo/9": "lock:\t1: FLOCK  ADVISORY  WRITE 50 fe:00:5678 0 EOF\n",
			})
			must.Do(t, os.Symlink("/db/meta.db", filepath.Join(root, "50/fd/9")))
			dir := filepath.Join(root, "10/root/run/task")
			must.Do(t, os.MkdirAll(filepath.Join(dir, "known"), 0o755))
			now := time.Now()
			begin := now
			listed := map[string]*cri.Entry{"known": {ID: "known", State: cri.StateRunning}}
			options := optionsOf(t, root, &now)
			evidencetest.WriteTree(t, options.SysFS, map[string]string{"fs/cgroup/cgroup.controllers": "cpu\n"})
			options.Listed = func() map[string]*cri.Entry { return listed }
			if tt.waits != 0 {
				options.StartsWait = func() time.Time { return begin.Add(-tt.waits) }
			}
			l := New(options)
			l.Pass(t.Context())
			if tt.entry != "" {
				must.Do(t, os.Mkdir(filepath.Join(dir, tt.entry), 0o700))
				must.Do(t, os.Chtimes(dir, now.Add(time.Second), now.Add(time.Second)))
			}
			if tt.listed != nil {
				listed = map[string]*cri.Entry{"known": listed["known"], tt.listed.ID: tt.listed}
			}
			l.Pass(t.Context())
			now = now.Add(limit)
			if tt.after != 0 {
				now = begin.Add(tt.after)
			}
			found := l.Pass(t.Context()).Findings
			if tt.reason == "" {
				check.Equal(t, len(found), 0, "%+v", found)
				return
			}
			check.Equal(t, len(found), 1, "%+v", found)
			check.Equal(t, found[0].Reason, tt.reason, "%+v", found)
			want := facts.Link{Kind: facts.KindProcess, Name: "holder", PID: 50}
			check.Equal(t, found[0].Chain.Culprit().IsSame(&want), true, "%+v", found)
		})
	}
}

// TestKubeletsCalls: once the kubelet's calls that start pods fail, what makes them fail is looked for at once; without such a
// thing the metrics say all.
func TestKubeletsCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		options string // of the mount of a cgroup
		succeed bool
		want    int
	}{
		"cgroups are read-only": {options: "ro", want: 1},
		"they are not":          {options: "rw"},
		"no call fails":         {options: "ro", succeed: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t, nil)
			evidencetest.WriteTree(t, root, map[string]string{
				"10/mountinfo": "1 0 0:2 / / rw - tmpfs tmpfs rw\n2 1 0:25 / /sys/fs/cgroup " + tt.options + " - cgroup2 cgroup2 rw\n",
			})
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return map[string]*cri.Entry{} }
			options.StartsFail = func() time.Time {
				if tt.succeed {
					return time.Time{}
				}
				return now.Add(-limit)
			}
			found := New(options).Pass(t.Context()).Findings
			check.Equal(t, len(found), tt.want, "%+v", found)
			for _, f := range found {
				check.Equal(t, f.Chain.Culprit().Name, "/sys/fs/cgroup", "%+v", f)
				check.Equal(t, f.Since.Equal(now.Add(-limit)), true, "%+v", f)
			}
		})
	}
}
