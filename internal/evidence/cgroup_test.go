package evidence

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/evidencetest"
)

const (
	runtimeCgroup = "/system.slice/containerd.service"
	v1Cgroups     = "12:pids:P\n11:memory:P\n10:freezer:P\n5:cpuset:/\n4:cpuacct:P\n3:cpu:P\n1:name=systemd:P\n"
	jointCgroups  = "4:cpu,cpuacct:P\n1:name=systemd:P\n"
	v2Cgroups     = "0::P\n"
)

// cgroupOf is the source over a fixture tree, of a process that is in the
// cgroups of content, P being the runtime's.
func cgroupOf(t *testing.T, sysfs, content string) *Watch[health.Cgroup] {
	t.Helper()
	proc := t.TempDir()
	evidencetest.WriteTree(t, proc, map[string]string{"42/cgroup": strings.ReplaceAll(content, "P\n", runtimeCgroup+"\n")})
	return newCgroup("cgroup", proc, sysfs, func() int { return 42 })
}

func gatherCgroup(t *testing.T, w *Watch[health.Cgroup]) *health.Cgroup {
	t.Helper()
	v, err := w.spec.Gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCgroupLayouts(t *testing.T) {
	tests := []struct {
		name, sysfs, cgroups string
		want                 health.Cgroup
	}{
		{
			"v1: the slice is nearer to its limit of tasks", "testdata/cgroup_v1", v1Cgroups,
			health.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second, PIDs: 90, PIDsMax: 100},
		},
		{
			"v1, cpu and cpuacct in one", "testdata/cgroup_joint", jointCgroups,
			health.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second},
		},
		{
			"v2: the own limit of memory is nearer, and none of tasks", "testdata/cgroup_v2", v2Cgroups,
			health.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second, PIDs: 40, MemoryLimits: []health.MemoryLimit{{Path: runtimeCgroup, Usage: 300000000, Max: 400000000}, {Path: "/system.slice", Usage: 700000000, Max: 4000000000}}},
		},
		{
			"hybrid: frozen by v2, the rest by v1", "testdata/cgroup_hybrid", v1Cgroups + v2Cgroups,
			health.Cgroup{Path: runtimeCgroup, Frozen: true, ThrottledTotal: 5 * time.Second, PIDs: 7, PIDsMax: 10, MemoryLimits: []health.MemoryLimit{{Path: runtimeCgroup, Usage: 5, Max: 50}}},
		},
		{
			"hybrid: v1 says less than all", "testdata/cgroup_hybrid", "3:cpu:P\n0::/\n",
			health.Cgroup{Path: runtimeCgroup, ThrottledTotal: 5 * time.Second},
		},
		{
			"v2: the root has no limits", "testdata/cgroup_v2", "0::/\n",
			health.Cgroup{Path: "/"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := gatherCgroup(t, cgroupOf(t, tt.sysfs, tt.cgroups))
			if diff := cmp.Diff(tt.want, *got, cmpopts.IgnoreFields(health.Cgroup{}, "At", "FrozenAt")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCgroupThrottled(t *testing.T) {
	for _, tt := range []struct{ name, sysfs, cgroups, file, format string }{
		{"v1", "testdata/cgroup_v1", v1Cgroups, "fs/cgroup/cpu", "nr_periods %d\nnr_throttled %d\nthrottled_time %d000\n"},
		{"v2", "testdata/cgroup_v2", v2Cgroups, "fs/cgroup", "usage_usec 1\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sysfs := evidencetest.CopyTree(t, tt.sysfs)
			w := cgroupOf(t, sysfs, tt.cgroups)
			set := func(periods, throttled, usec int) *health.Cgroup {
				evidencetest.WriteTree(t, sysfs, map[string]string{tt.file + runtimeCgroup + "/cpu.stat": fmt.Sprintf(tt.format, periods, throttled, usec)})
				return gatherCgroup(t, w)
			}
			first := set(1000, 200, 5_000_000)
			if first.Throttled != 0 || first.ThrottledPeriods != 0 {
				t.Errorf("%+v: there is nothing to compare with", first)
			}
			v := set(1010, 205, 5_000_001)
			want := 1e-6 / v.At.Sub(first.At).Seconds()
			if v.ThrottledPeriods != .5 || v.Throttled < .999*want || v.Throttled > 1.001*want || v.ThrottledTotal != 5000001*time.Microsecond {
				t.Errorf("%+v, want %f and half of the periods", v, want)
			}
			// Only every other sample may show a quota: two are read.
			if v := set(1020, 205, 5_000_001); v.ThrottledPeriods != .25 || v.Throttled <= 0 || v.Throttled >= want {
				t.Errorf("%+v, want a quarter of the periods", v)
			}
			if v := set(1030, 205, 5_000_001); v.Throttled != 0 || v.ThrottledPeriods != 0 || !v.ThrottledAt.After(first.At) || !v.ThrottledAt.Before(v.At) {
				t.Errorf("%+v, want none", v)
			}
			if v := set(5, 5, 100); v.Throttled != 0 || v.ThrottledPeriods != 0 { // made again
				t.Errorf("%+v, want none", v)
			}
			if v := set(5, 5, 100); v.Throttled != 0 || v.ThrottledPeriods != 0 {
				t.Errorf("%+v, want none", v)
			}
		})
	}
}

// TestCgroupThrottledAfterAMoment: a cgroup that was throttled for a moment, ran again and
// then got no CPU time waits, although two samples together count only the moment.
func TestCgroupThrottledAfterAMoment(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	w := cgroupOf(t, sysfs, v2Cgroups)
	set := func(periods, throttled, usec int) *health.Cgroup {
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup" + runtimeCgroup + "/cpu.stat": fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", periods, throttled, usec)})
		return gatherCgroup(t, w)
	}
	set(6, 6, 0)
	if v := set(10, 8, 0); v.Throttled != .5 || v.ThrottledPeriods != .5 {
		t.Errorf("%+v: the kernel counts the periods at once, and the time later", v)
	}
	set(12, 9, 1)
	set(14, 10, 1)
	if v := set(16, 12, 1); v.Throttled != 1 || v.ThrottledPeriods != 1 {
		t.Errorf("%+v: in the last two periods it has not run", v)
	}
	// One period may be counted in the next moment.
	set(20, 12, 2)
	if v := set(21, 13, 2); v.Throttled > .1 {
		t.Errorf("%+v: of a single period nobody knows yet", v)
	}
}

// TestCgroupQuotaLifted: with the quota the throttling is over, at once.
func TestCgroupQuotaLifted(t *testing.T) {
	for _, tt := range []struct{ sysfs, cgroups, dir, file, none string }{
		{"testdata/cgroup_v1", v1Cgroups, "fs/cgroup/cpu", "cpu.cfs_quota_us", "-1\n"},
		{"testdata/cgroup_v2", v2Cgroups, "fs/cgroup", "cpu.max", "max 100000\n"},
	} {
		sysfs := evidencetest.CopyTree(t, tt.sysfs)
		w := cgroupOf(t, sysfs, tt.cgroups)
		set := func(quota string, n int) *health.Cgroup {
			evidencetest.WriteTree(t, sysfs, map[string]string{
				tt.dir + runtimeCgroup + "/" + tt.file: quota,
				tt.dir + runtimeCgroup + "/cpu.stat":   fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_usec %d\nthrottled_time %d\n", n, n, n*1000, n*1000000),
			})
			return gatherCgroup(t, w)
		}
		set("1000 100000\n", 1000)
		if v := set("1000 100000\n", 2000); v.Throttled == 0 || v.ThrottledPeriods != 1 {
			t.Errorf("%s: %+v, want it throttled", tt.file, v)
		}
		if v := set(tt.none, 2001); v.Throttled != 0 || v.ThrottledPeriods != 0 || v.ThrottledTotal == 0 {
			t.Errorf("%s: %+v, want it over", tt.file, v)
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

// TestCgroupThrottledAbove: a quota on the slice is counted there and not below.
func TestCgroupThrottledAbove(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	w := cgroupOf(t, sysfs, v2Cgroups)
	set := func(n int) *health.Cgroup {
		stat := fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", n, n, n*90_000_000)
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/system.slice/cpu.stat": stat})
		return gatherCgroup(t, w)
	}
	set(10)
	if v := set(20); v.Throttled == 0 || v.ThrottledPeriods != 1 || v.ThrottledTotal != 30*time.Minute+5*time.Second {
		t.Errorf("%+v, want the slice's", v)
	}
}

// TestCgroupFreezerState: a v1 freezer that is on its way freezes too.
func TestCgroupFreezerState(t *testing.T) {
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v1")
	for state, want := range map[string]bool{"FROZEN\n": true, "FREEZING\n": true, "THAWED\n": false, "": false} {
		evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/freezer" + runtimeCgroup + "/freezer.state": state})
		if v := gatherCgroup(t, cgroupOf(t, sysfs, v1Cgroups)); v.Frozen != want || v.Path != runtimeCgroup {
			t.Errorf("%q: %+v", state, v)
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
