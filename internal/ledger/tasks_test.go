package ledger

import (
	"cmp"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestUnreapedTasks: the children that have ended of one process of the runtime's cgroup use up the tasks that its limit allows.
func TestUnreapedTasks(t *testing.T) {
	for name, tt := range map[string]struct {
		limit, used string
		parent      int    // 0 for 30
		group       string // of the parent, "" for the runtime's
		count       int    // 0 for 60
		want        bool
	}{
		"most of the tasks":       {limit: "100", used: "100", want: true},
		"of the level below":      {limit: "100", used: "100", group: "/system/x", want: true},
		"of another cgroup":       {limit: "100", used: "100", group: "/kubepods"},
		"room for tasks":          {limit: "100", used: "97"},
		"no limit":                {limit: "max", used: "100"},
		"few of the tasks":        {limit: "1000", used: "1000"},
		"few":                     {limit: "60", used: "60", count: 49},
		"children of the runtime": {limit: "100", used: "100", parent: 10},
	} {
		t.Run(name, func(t *testing.T) {
			parent := cmp.Or(tt.parent, 30)
			count := cmp.Or(tt.count, 60)
			processes := []process{{pid: 30, parent: 1, comm: "ipam", state: 'S'}}
			for pid := range count {
				processes = append(processes, process{pid: 100 + pid, parent: parent, comm: "ipam", state: 'Z'})
			}
			root := node(t, processes)
			group := cmp.Or(tt.group, "/system")
			evidencetest.WriteTree(t, root, map[string]string{"10/cgroup": "0::/system\n", "30/cgroup": "0::" + group + "\n"})
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			evidencetest.WriteTree(t, filepath.Join(l.SysFS, "fs/cgroup"), map[string]string{
				"cgroup.controllers": "", "system/pids.max": tt.limit, "system/pids.current": tt.used, "system/x/.keep": "", "kubepods/.keep": "",
			})
			found := l.Pass(t.Context()).Findings
			if !tt.want {
				check.Equal(t, len(found), 0, "the findings")
				return
			}
			check.Equal(t, len(found), 1, "the findings")
			check.Equal(t, found[0].Reason, kernelLimitReached, "the reason")
			culprit := *found[0].Chain.Culprit()
			culprit.Since = time.Time{}
			check.Equal(t, culprit, facts.Link{
				Kind: facts.KindProcess, Name: "ipam", PID: 30, State: facts.LinkFailing,
				Evidence: fmt.Sprintf("%d of them are children that have ended and that it does not reap", count),
			}, "the culprit")
		})
	}
}
