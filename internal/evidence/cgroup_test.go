package evidence

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

const (
	runtimeCgroup = "/system.slice/containerd.service"
	v1Cgroups     = "12:pids:P\n11:memory:P\n10:freezer:P\n5:cpuset:/\n4:cpuacct:P\n3:cpu:P\n1:name=systemd:P\n"
	jointCgroups  = "4:cpu,cpuacct:P\n1:name=systemd:P\n"
	v2Cgroups     = "0::P\n"
)

// cgroupOf is the source over a fixture tree, of a process that is in the
// cgroups of content, P being the runtime's.
func cgroupOf(t *testing.T, sysfs, content string) *Watch[facts.Cgroup] {
	t.Helper()
	proc := t.TempDir()
	evidencetest.WriteTree(t, proc, map[string]string{"42/cgroup": strings.ReplaceAll(content, "P\n", runtimeCgroup+"\n")})
	return newCgroup("cgroup", proc, sysfs, func() int { return 42 })
}

func gatherCgroup(t *testing.T, w *Watch[facts.Cgroup]) *facts.Cgroup {
	t.Helper()
	v, err := w.spec.Gather(t.Context())
	must.Do(t, err)
	return v
}

func TestCgroupLayouts(t *testing.T) {
	tests := []struct {
		name, sysfs, cgroups string
		want                 facts.Cgroup
	}{
		{
			"v1: the slice is nearer to its limit of tasks", "testdata/cgroup_v1", v1Cgroups,
			facts.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second, PIDs: 90, PIDsMax: 100},
		},
		{
			"v1, cpu and cpuacct in one", "testdata/cgroup_joint", jointCgroups,
			facts.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second},
		},
		{
			"v2: the own limit of memory is nearer, and none of tasks", "testdata/cgroup_v2", v2Cgroups,
			facts.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second, PIDs: 40, MemoryLimits: []facts.MemoryLimit{{Path: runtimeCgroup, Usage: 300000000, Max: 400000000}, {Path: "/system.slice", Usage: 700000000, Max: 4000000000}}},
		},
		{
			"hybrid: frozen by v2, the rest by v1", "testdata/cgroup_hybrid", v1Cgroups + v2Cgroups,
			facts.Cgroup{Path: runtimeCgroup, Frozen: true, ThrottledTotal: 5 * time.Second, PIDs: 7, PIDsMax: 10, MemoryLimits: []facts.MemoryLimit{{Path: runtimeCgroup, Usage: 5, Max: 50}}},
		},
		{
			"hybrid: v1 says less than all", "testdata/cgroup_hybrid", "3:cpu:P\n0::/\n",
			facts.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second},
		},
		{
			"v2: the root has no limits", "testdata/cgroup_v2", "0::/\n",
			facts.Cgroup{Path: "/"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := gatherCgroup(t, cgroupOf(t, tt.sysfs, tt.cgroups))
			check.Same(t, *got, tt.want, "cgroup", cmpopts.IgnoreFields(facts.Cgroup{}, "At", "FrozenAt"))
		})
	}
}

// TestCgroupThrottled takes samples of cpu.stat a second apart. The kernel counts the periods
// at once, and the time when it gives the CPU back.
func TestCgroupThrottled(t *testing.T) {
	type step struct {
		periods, throttled, usec int
		share, of                float64 // of the time and of the periods
	}
	for name, tt := range map[string]struct {
		level  string
		lifted bool // in the last step
		steps  []step
		total  time.Duration
	}{
		"every other sample may show a quota; made again": {runtimeCgroup, false, []step{
			{1000, 200, 5_000_000, 0, 0}, {1010, 205, 5_500_000, .5, .5}, {1020, 205, 5_500_000, .25, .25}, {1030, 205, 5_500_000, 0, 0},
			{5, 5, 100, 0, 0}, {5, 5, 100, 0, 0},
		}, 100 * time.Microsecond},
		"for a moment, then without any CPU time": {runtimeCgroup, false, []step{
			{6, 6, 0, 0, 0}, {10, 8, 0, .5, .5}, {12, 9, 1, 0, .5}, {14, 10, 1, .5, .5}, {16, 12, 1, 1, 1}, {20, 12, 2, 0, 0}, {21, 13, 2, 0, .2},
		}, 2 * time.Microsecond},
		"the quota is lifted": {runtimeCgroup, true, []step{
			{1000, 1000, 1_000_000, 0, 0}, {2000, 2000, 2_000_000, 1, 1}, {2001, 2001, 2_001_000, 0, 0},
		}, 2001 * time.Millisecond},
		"a quota of the slice": {"/system.slice", false, []step{
			{10, 10, 900_000_000, 0, 0}, {20, 20, 1_800_000_000, 1, 1},
		}, 30*time.Minute + 5*time.Second},
	} {
		for _, v := range []struct{ sysfs, cgroups, root, format, file, none string }{
			{"testdata/cgroup_v1", v1Cgroups, "fs/cgroup/cpu", "nr_periods %d\nnr_throttled %d\nthrottled_time %d000\n", "cpu.cfs_quota_us", "-1\n"},
			{"testdata/cgroup_v2", v2Cgroups, "fs/cgroup", "nr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", "cpu.max", "max 100000\n"},
		} {
			synctest.Test(t, func(t *testing.T) {
				sysfs := evidencetest.CopyTree(t, v.sysfs)
				w, dir := cgroupOf(t, sysfs, v.cgroups), v.root+tt.level+"/"
				var got *facts.Cgroup
				var since time.Time
				for i, s := range tt.steps {
					time.Sleep(time.Second)
					files := map[string]string{dir + "cpu.stat": fmt.Sprintf(v.format, s.periods, s.throttled, s.usec), dir + v.file: "1000 100000\n"}
					if tt.lifted && i == len(tt.steps)-1 {
						files[dir+v.file] = v.none
					}
					evidencetest.WriteTree(t, sysfs, files)
					got = gatherCgroup(t, w)
					if s.share > 0 && got.ThrottledPath != tt.level {
						t.Errorf("%s, %s, step %d: the quota of %q takes most, want %q", name, v.file, i, got.ThrottledPath, tt.level)
					}
					if math.Abs(got.Throttled-s.share) > 1e-3 || math.Abs(got.ThrottledPeriods-s.of) > 1e-3 {
						t.Errorf("%s, %s, step %d: %f of the time, %f of the periods; want %+v", name, v.file, i, got.Throttled, got.ThrottledPeriods, s)
					}
					begins := s.share > 0 && since.IsZero()
					if begins {
						since = got.At
					}
					if s.share == 0 {
						since = time.Time{}
					}
					check.Equal(t, got.ThrottledSince, since, "%s, %s, step %d: throttled since", name, v.file, i)
				}
				if got.ThrottledTotal != tt.total || got.ThrottledAt.IsZero() || got.ThrottledAt.After(got.At) {
					t.Errorf("%s, %s: %s in all, the last at %s", name, v.file, got.ThrottledTotal, got.ThrottledAt)
				}
			})
		}
	}
}

// TestCgroupFrozenByParent: the level that is named is the topmost one that has to be
// thawed, also where a level below it is frozen besides.
func TestCgroupFrozenByParent(t *testing.T) {
	const slice = "/system.slice"
	v1, v2 := "fs/cgroup/freezer", "fs/cgroup"
	for name, tt := range map[string]struct {
		dir, cgroups string
		files        map[string]string
		want         string
	}{
		"v1, the parent": {"testdata/cgroup_v1", v1Cgroups, map[string]string{
			v1 + runtimeCgroup + "/freezer.state": "FROZEN\n", v1 + slice + "/freezer.state": "FROZEN\n",
		}, slice},
		"v1, the parent, which still has a task in D": {"testdata/cgroup_v1", v1Cgroups, map[string]string{
			v1 + runtimeCgroup + "/freezer.state": "FROZEN\n", v1 + slice + "/freezer.state": "FREEZING\n",
		}, slice},
		"v1, on its way": {"testdata/cgroup_v1", v1Cgroups, map[string]string{
			v1 + runtimeCgroup + "/freezer.state": "FREEZING\n",
		}, runtimeCgroup},
		"v1, itself": {"testdata/cgroup_v1", v1Cgroups, map[string]string{
			v1 + runtimeCgroup + "/freezer.state": "FROZEN\n", v1 + slice + "/freezer.state": "THAWED\n",
		}, runtimeCgroup},
		"v2, the parent, which still has a task in D": {"testdata/cgroup_v2", v2Cgroups, map[string]string{
			v2 + runtimeCgroup + "/cgroup.events": "populated 1\nfrozen 1\n", v2 + runtimeCgroup + "/cgroup.freeze": "0\n",
			v2 + slice + "/cgroup.events": "populated 1\nfrozen 0\n", v2 + slice + "/cgroup.freeze": "1\n",
		}, slice},
		"v2, the parent, and nothing tells who froze it": {"testdata/cgroup_v2", v2Cgroups, map[string]string{
			v2 + slice + "/cgroup.events": "populated 1\nfrozen 1\n",
		}, slice},
		"v2, itself": {"testdata/cgroup_v2", v2Cgroups, map[string]string{
			v2 + runtimeCgroup + "/cgroup.events": "populated 1\nfrozen 1\n", v2 + runtimeCgroup + "/cgroup.freeze": "1\n",
			v2 + slice + "/cgroup.events": "populated 1\nfrozen 0\n", v2 + slice + "/cgroup.freeze": "0\n",
		}, runtimeCgroup},
	} {
		sysfs := evidencetest.CopyTree(t, tt.dir)
		evidencetest.WriteTree(t, sysfs, tt.files)
		if v := gatherCgroup(t, cgroupOf(t, sysfs, tt.cgroups)); !v.Frozen || v.Path != tt.want {
			t.Errorf("%s: %q is named, want %q", name, v.Path, tt.want)
		}
	}
}

// TestCgroupNotThere: where plegd does not see the cgroup it says so, and does
// not say that nothing is throttled.
func TestCgroupNotThere(t *testing.T) {
	for name, tt := range map[string]struct{ sysfs, cgroups string }{
		"no hierarchy is mounted": {"testdata/none", v1Cgroups + v2Cgroups},
		"nothing is said":         {"testdata/cgroup_v2", "\n:\nx:y\n1:cpu:relative\n"},
		"another tree":            {"testdata/cgroup_v2", "0::/elsewhere\n"},
	} {
		if v, err := cgroupOf(t, tt.sysfs, tt.cgroups).spec.Gather(t.Context()); err == nil || errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), "fs/cgroup") {
			t.Errorf("%s: %+v, %v; want an error that says where it was looked for", name, v, err)
		}
	}
	if v, err := cgroupOf(t, "testdata/cgroup_v2", "0::/user.slice (deleted)\n").spec.Gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("a cgroup that is gone: %+v, %v", v, err)
	}
	for _, pid := range []int{0, 4711} {
		if v, err := newCgroup("cgroup", "testdata/proc", "testdata/cgroup_v2", func() int { return pid }).spec.Gather(t.Context()); !errors.Is(err, ErrNoData) {
			t.Errorf("pid %d: %+v, %v", pid, v, err)
		}
	}
}

// TestCgroupOutside: what lies outside the namespace is not read somewhere else.
func TestCgroupOutside(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/..x/cgroup.events": "frozen 0\n"})
	if v := gatherCgroup(t, cgroupOf(t, sysfs, "0::/..x\n")); v.Path != "/..x" {
		t.Errorf("%+v: a name may begin with two dots", v)
	}
	for _, content := range []string{"0::/..\n", "0::/../containerd.service\n", "4:memory:/../../x\n3:cpu:P\n"} {
		v, err := cgroupOf(t, "testdata/cgroup_v2", content).spec.Gather(t.Context())
		if err == nil || v != nil || !strings.Contains(err.Error(), "namespace") || !strings.Contains(err.Error(), "/..") {
			t.Errorf("%q: %+v, %v; want an error about the namespace", content, v, err)
		}
	}
}

// TestCgroupOfAnotherNamespace: an unprivileged pod sees the relative path of the runtime's
// cgroup, and not where that is; the processes in it show that.
func TestCgroupOfAnotherNamespace(t *testing.T) {
	for _, tt := range []struct{ layout, cgroups, procs string }{
		{"cgroup_v2", v2Cgroups, "fs/cgroup" + runtimeCgroup},
		{"cgroup_joint", jointCgroups, "fs/cgroup/cpu,cpuacct" + runtimeCgroup},
	} {
		sysfs := evidencetest.CopyTree(t, "testdata/"+tt.layout)
		procs := map[string]string{tt.procs + "/cgroup.procs": "7\n42\n"}
		if tt.layout == "cgroup_joint" {
			procs["fs/cgroup/systemd"+runtimeCgroup+"/cgroup.procs"] = "42\n"
		}
		evidencetest.WriteTree(t, sysfs, procs)
		outside := strings.ReplaceAll(tt.cgroups, "P\n", "/../../.."+runtimeCgroup+"\n")
		if v := gatherCgroup(t, cgroupOf(t, sysfs, outside)); v.Path != runtimeCgroup || v.ThrottledTotal != 5*time.Second {
			t.Errorf("%s: %+v", tt.layout, v)
		}
		for path := range procs {
			procs[path] = "4\n421\n"
		}
		evidencetest.WriteTree(t, sysfs, procs)
		if v, err := cgroupOf(t, sysfs, outside).spec.Gather(t.Context()); err == nil || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("%s, of another process: %+v, %v", tt.layout, v, err)
		}
	}
}

const slice = "/system.slice"

// The files as a kernel writes them.
const (
	eventsLocal = "low 0\nhigh %d\nmax %d\noom 0\noom_kill %d\noom_group_kill 0\nsock_throttled 0\n"
	memoryStat  = "anon 104857600\nfile 8192\nworkingset_refault_anon 0\nworkingset_refault_file %d\nworkingset_activate_anon 0\npgmajfault 31\n"
	oomControl  = "oom_kill_disable 1\nunder_oom %d\noom_kill 0\n"
	pressure    = "some avg10=%s avg60=63.11 avg300=20.99 total=77812324\nfull avg10=%s avg60=50.18 avg300=16.02 total=60193316\n"
)

// TestCgroupMemoryV2: the limits at every level, with how often each was met.
// The events of a level below are not its own.
func TestCgroupMemoryV2(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	w := cgroupOf(t, sysfs, v2Cgroups)
	root := "fs/cgroup"
	set := func(high, most, refaults int) []facts.MemoryLimit {
		t.Helper()
		evidencetest.WriteTree(t, sysfs, map[string]string{
			root + runtimeCgroup + "/memory.current":      "104882176\n",
			root + runtimeCgroup + "/memory.high":         "104857600\n",
			root + runtimeCgroup + "/memory.max":          "max\n",
			root + runtimeCgroup + "/memory.events.local": fmt.Sprintf(eventsLocal, high, 0, 0),
			root + runtimeCgroup + "/memory.stat":         fmt.Sprintf(memoryStat, refaults),
			root + slice + "/memory.current":              "314572800\n",
			root + slice + "/memory.high":                 "max\n",
			root + slice + "/memory.max":                  "314572800\n",
			root + slice + "/memory.events":               fmt.Sprintf(eventsLocal, 99+high, most, 0),
			root + slice + "/memory.events.local":         fmt.Sprintf(eventsLocal, 0, most, most/2),
			root + slice + "/memory.stat":                 fmt.Sprintf(memoryStat, 0),
		})
		return gatherCgroup(t, w).MemoryLimits
	}
	want := []facts.MemoryLimit{
		{Path: runtimeCgroup, Usage: 104882176, High: 104857600},
		{Path: slice, Usage: 314572800, Max: 314572800},
	}
	check.Same(t, set(1000, 10, 5000), want, "with nothing to compare with")
	want[0].HighEvents, want[1].MaxEvents, want[1].OOMKills = 21, 4, 2
	withoutRefaults := cmpopts.IgnoreFields(facts.MemoryLimit{}, "Refaults", "OOMKilledAt")
	got := set(1021, 14, 5900)
	if diff := cmp.Diff(want, got, withoutRefaults); diff != "" || got[0].Refaults < 100 || got[1].Refaults != 0 {
		t.Errorf("%s; refaults %+v", diff, got)
	}
	// A limit that was reached a moment ago counts for a few samples.
	if got := set(1021, 14, 5900); got[0].HighEvents != 21 || got[1].MaxEvents != 4 {
		t.Errorf("%+v, want the events of the samples before", got)
	}
	for range 5 {
		got = set(1021, 14, 5900)
	}
	if got[0].HighEvents != 0 || got[1].MaxEvents != 0 || got[0].Refaults != 0 {
		t.Errorf("%+v, want no events", got)
	}
	// Another cgroup of the same name counts from 0.
	if got := set(3, 1, 9); got[0].HighEvents != 0 || got[1].MaxEvents != 0 || got[0].Refaults != 0 {
		t.Errorf("%+v, want no events of a new cgroup", got)
	}
	if got := set(5, 1, 9); got[0].HighEvents != 2 {
		t.Errorf("%+v, want two events", got)
	}
}

// TestCgroupMemoryEvents: before Linux 5.2 there is no memory.events.local.
func TestCgroupMemoryEvents(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	w := cgroupOf(t, sysfs, v2Cgroups)
	for high, want := range []uint64{0, 1, 2} {
		evidencetest.WriteTree(t, sysfs, map[string]string{
			"fs/cgroup" + runtimeCgroup + "/memory.high":   "104857600\n",
			"fs/cgroup" + runtimeCgroup + "/memory.events": fmt.Sprintf(eventsLocal, high, 0, 0),
		})
		if got := gatherCgroup(t, w).MemoryLimits; len(got) == 0 || got[0].HighEvents != want {
			t.Errorf("%+v, want %d events", got, want)
		}
	}
}

// TestCgroupKills: processes that are killed for memory count at the level whose limit it is, be they in one below, and
// after the end of the runtime, too.
func TestCgroupKills(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	procfs := t.TempDir()
	content := strings.ReplaceAll(v2Cgroups, "P\n", runtimeCgroup+"\n")
	evidencetest.WriteTree(t, procfs, map[string]string{"42/cgroup": content})
	w := newCgroup("cgroup", procfs, sysfs, func() int { return 42 })
	set := func(kills int) {
		evidencetest.WriteTree(t, sysfs, map[string]string{
			"fs/cgroup" + runtimeCgroup + "/memory.max":          "max\n",
			"fs/cgroup" + runtimeCgroup + "/memory.high":         "max\n",
			"fs/cgroup" + runtimeCgroup + "/memory.events.local": fmt.Sprintf(eventsLocal, 0, 0, kills),
			"fs/cgroup" + slice + "/memory.max":                  "314572800\n",
			"fs/cgroup" + slice + "/memory.events.local":         fmt.Sprintf(eventsLocal, 0, 0, 7),
		})
	}
	set(3)
	gatherCgroup(t, w)
	for _, step := range []struct {
		kills int
		want  uint64
	}{{3, 0}, {4, 1}, {6, 3}, {6, 3}} {
		set(step.kills)
		got := gatherCgroup(t, w).MemoryLimits
		check.Equal(t, len(got), 1, "limits")
		check.Equal(t, got[0].Path, slice, "the limited level")
		check.Equal(t, got[0].OOMKills, step.want, "%d killed until now", step.kills)
	}
	must.Do(t, os.RemoveAll(filepath.Join(procfs, "42")))
	set(7)
	check.Equal(t, gatherCgroup(t, w).MemoryLimits[0].OOMKills, 4, "after its own end")
}

// TestCgroupRefusals: a new task that was refused counts at any level, and be there fewer by now.
func TestCgroupRefusals(t *testing.T) {
	for _, level := range []string{runtimeCgroup, slice} {
		sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
		w := cgroupOf(t, sysfs, v2Cgroups)
		for _, step := range []struct {
			refused int
			want    bool
		}{{3, false}, {3, false}, {4, true}, {4, true}} {
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup" + level + "/pids.events": fmt.Sprintf("max %d\n", step.refused)})
			check.Equal(t, gatherCgroup(t, w).PIDsRefused, step.want, "%d refused at %s until now", step.refused, level)
		}
	}
}

// TestCgroupMemoryV1: failcnt, and tasks that wait for memory that nobody frees.
func TestCgroupMemoryV1(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v1")
	w := cgroupOf(t, sysfs, v1Cgroups)
	set := func(failures, underOOM int) []facts.MemoryLimit {
		t.Helper()
		dir := "fs/cgroup/memory" + slice
		evidencetest.WriteTree(t, sysfs, map[string]string{
			dir + "/memory.usage_in_bytes": "10182656\n", dir + "/memory.limit_in_bytes": "10186752\n",
			dir + "/memory.failcnt": fmt.Sprintf("%d\n", failures), dir + "/memory.oom_control": fmt.Sprintf(oomControl, underOOM),
			dir + "/memory.stat": "cache 0\nworkingset_refault_file 3\ntotal_workingset_refault_anon 10\ntotal_workingset_refault_file 2830\n",
			"fs/cgroup/memory" + runtimeCgroup + "/memory.limit_in_bytes": "9223372036854771712\n",
		})
		return gatherCgroup(t, w).MemoryLimits
	}
	set(2450, 0)
	want := []facts.MemoryLimit{{Path: slice, Usage: 10182656, Max: 10186752, MaxEvents: 277, OOM: true}}
	check.Same(t, set(2727, 1), want, "memory limits")
}

// TestCgroupPressure: the runtime's own, on v2 and beside v1; that of the root is
// the node's.
func TestCgroupPressure(t *testing.T) {
	want := &facts.CgroupPressure{CPUSome: 12.5, MemoryFull: 91.44, IOSome: -1}
	for _, tt := range []struct{ name, sysfs, cgroups, root string }{
		{"v2", "testdata/cgroup_v2", v2Cgroups, "fs/cgroup"},
		{"hybrid", "testdata/cgroup_hybrid", v1Cgroups + v2Cgroups, "fs/cgroup/unified"},
	} {
		sysfs := evidencetest.CopyTree(t, tt.sysfs)
		for _, dir := range []string{tt.root, tt.root + runtimeCgroup} {
			evidencetest.WriteTree(t, sysfs, map[string]string{
				dir + "/cpu.pressure": fmt.Sprintf(pressure, "12.50", "0.00"), dir + "/memory.pressure": fmt.Sprintf(pressure, "98.02", "91.44"),
			})
		}
		check.Same(t, gatherCgroup(t, cgroupOf(t, sysfs, tt.cgroups)).Pressure, want, tt.name)
		if p := gatherCgroup(t, cgroupOf(t, sysfs, "3:cpu:P\n0::/\n")).Pressure; p != nil {
			t.Errorf("%s: %+v of the root", tt.name, p)
		}
	}
	if p := gatherCgroup(t, cgroupOf(t, "testdata/cgroup_v1", v1Cgroups)).Pressure; p != nil {
		t.Errorf("v1: %+v", p)
	}
	dir := t.TempDir()
	for _, text := range []string{"", "some\n", "some avg60=1\n", "some avg10=x avg60=1\n", "some avg10=-1 a\n", "full avg10=101 a\n"} {
		evidencetest.WriteTree(t, dir, map[string]string{"cpu.pressure": text})
		for _, line := range []string{"some", "full"} {
			check.Equal(t, proc.Files{}.Pressure(line, dir, "cpu.pressure"), -1, "%s of %q", line, text)
		}
	}
}
