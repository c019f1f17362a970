package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestQuotaOfShim: where a CPU quota holds up the last process of a chain, the chain leads from the shim in its cgroup to it,
// whichever helper the shim has at that moment; unless that waits for something else.
func TestQuotaOfShim(t *testing.T) {
	const lock = "1: FLOCK ADVISORY WRITE 12 fe:00:5 0 EOF\n1: -> FLOCK ADVISORY WRITE 20 fe:00:5 0 EOF\n"
	for _, tt := range []struct {
		name    string
		helper  byte // its state
		exiting bool // v1 shows its cgroup as the root then
		parent  string
		locks   string
		want    []facts.LinkKind
		culprit string
	}{
		{name: "a helper", helper: 'R', parent: "/shims", want: []facts.LinkKind{facts.KindCall, facts.KindShim, facts.KindCgroup}, culprit: "/shims"},
		{name: "a helper that is ending", helper: 'R', exiting: true, parent: "/shims", want: []facts.LinkKind{facts.KindCall, facts.KindShim, facts.KindCgroup}, culprit: "/shims"},
		{name: "a helper that has ended", helper: 'Z', exiting: true, parent: "/shims", want: []facts.LinkKind{facts.KindCall, facts.KindShim, facts.KindCgroup}, culprit: "/shims"},
		{name: "a shim in another cgroup", helper: 'R', parent: "/other", want: []facts.LinkKind{facts.KindCall, facts.KindHelper, facts.KindCgroup}, culprit: "/shims"},
		{name: "a lock of a stopped process", helper: 'S', parent: "/shims", locks: lock, want: []facts.LinkKind{facts.KindCall, facts.KindHelper, facts.KindProcess}, culprit: "thing"},
	} {
		root := procTree(t, map[int]byte{10: 'S', 12: 'T', 20: tt.helper})
		lockedBy(t, root, 12, "fe:00:5")
		helper := evidencetest.StatLine(20, "runc", tt.helper, 10, 100)
		cgroup := "0::/shims\n"
		if tt.exiting {
			helper = strings.Replace(helper, " 4194304 ", " 4194308 ", 1)
			cgroup = "0::/\n"
		}
		evidencetest.WriteTree(t, root, map[string]string{
			"locks":      tt.locks,
			"10/stat":    evidencetest.StatLine(10, "containerd-shim", 'S', 1, 100),
			"10/cmdline": "/usr/bin/containerd-shim-runc-v2\x00-id\x00s\x00",
			"10/cgroup":  "0::" + tt.parent + "\n", "10/task/10/children": "20",
			"20/stat": helper, "20/task/20/stat": helper, "20/cmdline": "runc\x00update\x00c\x00", "20/cgroup": cgroup,
		})
		sysfs := t.TempDir()
		dir := filepath.Join(sysfs, "fs/cgroup/shims")
		evidencetest.WriteTree(t, sysfs, map[string]string{
			"fs/cgroup/cgroup.controllers": "cpu", "fs/cgroup/other/cgroup.procs": "10", "fs/cgroup/shims/cpu.max": "1000 500000",
		})
		stop := throttle(t, dir)
		c := facts.Chain{At: time.Now(), Links: []facts.Link{{Kind: facts.KindCall, Name: "list_containers"}}}
		New(proc.NewTable(root), sysfs, nil).follow(t.Context(), &c, 20)
		stop()
		var kinds []facts.LinkKind
		for _, l := range c.Links {
			kinds = append(kinds, l.Kind)
		}
		check.Equal(t, fmt.Sprint(kinds), fmt.Sprint(tt.want), "%s: %+v", tt.name, c)
		check.Equal(t, c.Culprit().Name, tt.culprit, "%s: the culprit of %+v", tt.name, c)
		check.Equal(t, c.Unknown, "", "%s", tt.name)
	}
}

// throttle counts throttled periods of a cgroup until stop.
func throttle(t *testing.T, dir string) (stop func()) {
	t.Helper()
	end := make(chan struct{})
	done := make(chan struct{})
	write := func(n int) {
		text := fmt.Appendf(nil, "nr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", n, n, n)
		must.Do(t, os.WriteFile(dir+"/cpu.stat.new", text, 0o644))
		must.Do(t, os.Rename(dir+"/cpu.stat.new", dir+"/cpu.stat"))
	}
	write(1)
	go func() {
		defer close(done)
		for n := 2; ; n++ {
			select {
			case <-end:
				return
			case <-time.After(200 * time.Millisecond):
				write(n)
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}
