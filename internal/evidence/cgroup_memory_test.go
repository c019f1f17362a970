package evidence

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

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
	if diff := cmp.Diff(want, set(1000, 10, 5000)); diff != "" {
		t.Errorf("nothing to compare with: %s", diff)
	}
	want[0].HighEvents, want[1].MaxEvents, want[1].OOMKills = 21, 4, 2
	withoutRefaults := cmpopts.IgnoreFields(facts.MemoryLimit{}, "Refaults")
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
	if diff := cmp.Diff(want, set(2727, 1)); diff != "" {
		t.Error(diff)
	}
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
		if diff := cmp.Diff(want, gatherCgroup(t, cgroupOf(t, sysfs, tt.cgroups)).Pressure); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
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
			check.Equal(t, proc.Pressure(dir+"/cpu.pressure", line), -1, "%s of %q", line, text)
		}
	}
}
