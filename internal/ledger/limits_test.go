package ledger

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestExhausted: starts that fail end in the cgroup that the pods have in common and that is at a limit now, not in one of
// a single pod.
func TestExhausted(t *testing.T) {
	const v1 = "3:pids:GROUP\n1:name=systemd:/\n"
	const v2 = "0::GROUP\n"
	const memory1 = "3:memory:GROUP\n1:name=systemd:/\n"
	full := func(cache string) map[string]string {
		return map[string]string{
			"memory/kubepods/memory.limit_in_bytes": "100", "memory/kubepods/memory.usage_in_bytes": "100", "memory/kubepods/memory.failcnt": "1",
			"memory/kubepods/memory.stat": "total_inactive_file " + cache + "\n", "vmstat": "oom_kill 5\n",
		}
	}
	for _, tt := range []struct {
		name, groups string
		files        map[string]string
		later        map[string]string // at the second look
		want         string            // evidence, "" for none
		path         string            // "" for /kubepods
	}{
		{name: "v1 tasks", groups: v1, files: map[string]string{"pids/kubepods/pids.max": "120", "pids/kubepods/pids.current": "120"},
			want: "/sys/fs/cgroup/pids/kubepods/pids.max is 120, pids.current 120"},
		{name: "v2 tasks", groups: v2, files: map[string]string{"kubepods/pids.max": "120", "kubepods/pids.current": "121"},
			want: "/sys/fs/cgroup/kubepods/pids.max is 120, pids.current 121"},
		{name: "room for tasks", groups: v2, files: map[string]string{"kubepods/pids.max": "120", "kubepods/pids.current": "119"}},
		{name: "no limit", groups: v2, files: map[string]string{"kubepods/pids.max": "max", "kubepods/pids.current": "119"}},
		{name: "the limit of one pod", groups: v2, files: map[string]string{"kubepods/pod1/pids.max": "9", "kubepods/pod1/pids.current": "9"}},
		{name: "the limit of the runtime", groups: v2, files: map[string]string{"system/pids.max": "9", "system/pids.current": "9"},
			want: "/sys/fs/cgroup/system/pids.max is 9, pids.current 9", path: "/system"},
		{name: "cgroups", groups: v2, files: map[string]string{"kubepods/cgroup.max.descendants": "4", "kubepods/cgroup.stat": "nr_descendants 4\nnr_dying_descendants 0\n"},
			want: "/sys/fs/cgroup/kubepods/cgroup.max.descendants is 4, and it has 4"},
		{name: "room for cgroups", groups: v2, files: map[string]string{"kubepods/cgroup.max.descendants": "4", "kubepods/cgroup.stat": "nr_descendants 3\nnr_dying_descendants 9\n"}},
		{name: "v2 memory", groups: v2, files: map[string]string{"kubepods/memory.max": "100", "kubepods/memory.events.local": "max 1\noom 1\n"},
			later: map[string]string{"kubepods/memory.events.local": "max 9\noom 2\n"},
			want:  "/sys/fs/cgroup/kubepods/memory.max is 100, and the kernel has ended processes for it since starts fail"},
		{name: "v2 memory of before", groups: v2, files: map[string]string{"kubepods/memory.max": "100", "kubepods/memory.events.local": "max 1\noom 1\n"},
			later: map[string]string{"kubepods/memory.events.local": "max 9\noom 1\n"}},
		{name: "v1 memory", groups: memory1, files: full("5"), later: map[string]string{"memory/kubepods/memory.failcnt": "2", "vmstat": "oom_kill 6\n"},
			want: "/sys/fs/cgroup/memory/kubepods/memory.limit_in_bytes is 100, and the kernel has ended processes for it since starts fail"},
		{name: "v1 memory, nothing ended", groups: memory1, files: full("5"), later: map[string]string{"memory/kubepods/memory.failcnt": "2"}},
		{name: "v1 memory, page cache", groups: memory1, files: full("50"), later: map[string]string{"memory/kubepods/memory.failcnt": "2", "vmstat": "oom_kill 6\n"}},
		{name: "v1 memory, another limit", groups: memory1, files: full("5"), later: map[string]string{"vmstat": "oom_kill 6\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, []process{
				{pid: 21, parent: 1, comm: "containerd-shim", state: 'S'},
				{pid: 30, parent: 20, comm: "pause", state: 'S'}, {pid: 31, parent: 21, comm: "pause", state: 'S'},
			})
			in := func(group string) string { return strings.ReplaceAll(tt.groups, "GROUP", group) }
			evidencetest.WriteTree(t, root, map[string]string{
				"10/cgroup": in("/system"),
				"20/cgroup": in("/system"), "21/cgroup": in("/system"), "30/cgroup": in("/kubepods/pod1"), "31/cgroup": in("/kubepods/pod2"),
			})
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			tree := map[string]string{"cgroup.controllers": ""}
			for _, hierarchy := range []string{"", "pids", "memory"} {
				for _, group := range []string{"system", "kubepods/pod1", "kubepods/pod2"} {
					tree[filepath.Join(hierarchy, group, ".keep")] = ""
				}
			}
			evidencetest.WriteTree(t, filepath.Join(l.SysFS, "fs/cgroup"), tree)
			change := func(files map[string]string) {
				evidencetest.WriteTree(t, filepath.Join(l.SysFS, "fs/cgroup"), files)
				evidencetest.WriteTree(t, root, map[string]string{"vmstat": cmp.Or(files["vmstat"], "oom_kill 5\n")})
			}
			change(tt.files)
			p := &pass{Ledger: l, moment: now, pids: []int{10}, shims: map[int]proc.Process{}}
			l.served = map[proc.ID]served{}
			for pid, pod := range map[int]string{20: "a", 21: "b"} {
				shim, err := l.Table.Alive(pid)
				check.Equal(t, err, nil, "the shim")
				p.shims[pid] = shim
				l.served[shim.ID()] = served{entry: &cri.Entry{PodNamespace: "x", PodName: pod}}
			}
			runtime, _ := l.Table.Alive(10)
			l.started = starts{runtime: runtime.ID(), proven: true}
			found := p.startsFinding(t.Context())
			if tt.later != nil {
				check.Equal(t, found[0].Chain.Culprit().Kind, facts.KindRuntime, "the culprit at the first look")
				change(tt.later)
				found = p.startsFinding(t.Context())
			}
			culprit := found[0].Chain.Culprit()
			if tt.want == "" {
				check.Equal(t, culprit.Kind, facts.KindRuntime, "the culprit")
				return
			}
			check.Equal(t, *culprit, facts.Link{Kind: facts.KindCgroup, Name: cmp.Or(tt.path, "/kubepods"), State: facts.LinkFailing, Evidence: tt.want}, "the culprit")
		})
	}
}

// TestReadOnlyCgroups: a hierarchy of cgroups that the runtime sees read-only is named, not the directory of the hierarchies,
// nor one that another mount covers.
func TestReadOnlyCgroups(t *testing.T) {
	const root = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:2 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
	for _, tt := range []struct{ name, mounts, want string }{
		{"writable", "3 2 0:3 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", ""},
		{"the mount is read-only", "3 2 0:3 / /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n", "/sys/fs/cgroup/pids"},
		{"v2", "3 2 0:3 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified"},
		{"covered", "3 2 0:3 / /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n4 3 0:3 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", ""},
	} {
		place := node(t, nil)
		evidencetest.WriteTree(t, place, map[string]string{"10/mountinfo": root + tt.mounts})
		now := time.Now()
		p := &pass{Ledger: New(optionsOf(t, place, &now))}
		p.started.runtime.PID = 10
		link := p.readOnlyCgroups(t.Context())
		if tt.want == "" {
			check.Equal(t, link, nil, "%s", tt.name)
			continue
		}
		check.Equal(t, link != nil && link.Name == tt.want, true, "%s: %+v", tt.name, link)
	}
}

// TestLowLimits: starts that fail show the limits of the runtime's with which no child can run, and no others.
func TestLowLimits(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units\n"
	for _, tt := range []struct{ name, stack, space, data, want string }{
		{"none", "8388608", "unlimited", "unlimited", ""},
		{"just enough", "65536", "536870912", "67108864", ""},
		{"a small stack", "8192", "unlimited", "unlimited", "; its limit of the stack size is 8 KiB (LimitSTACK), children"},
		{"little address space", "8388608", "104857600", "unlimited", "; its limit of the address space is 102400 KiB (LimitAS), children"},
		{"no data", "8388608", "unlimited", "0", "; its limit of the data size is 0 KiB (LimitDATA), children"},
		{"invalid", "8388608", "", "unlimited", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			evidencetest.WriteTree(t, root, map[string]string{"10/limits": head +
				"Max data size             " + tt.data + "  unlimited bytes\nMax stack size   " + tt.stack + " unlimited bytes\nMax address space   " + tt.space + " unlimited bytes\n"})
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			runtime, _ := l.Table.Alive(10)
			l.started = starts{runtime: runtime.ID(), proven: true}
			p := &pass{Ledger: l, moment: now, pids: []int{10}, shims: map[int]proc.Process{}}
			evidence := p.startsFinding(t.Context())[0].Chain.Culprit().Evidence
			check.Equal(t, strings.Contains(evidence, "; its limit of ") && strings.Contains(evidence, tt.want), tt.want != "", "%s", evidence)
		})
	}
}
