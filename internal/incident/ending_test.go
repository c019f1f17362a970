package incident

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// sample is the evidence of a running node.
func sample() facts.Evidence {
	now := time.Now()
	return facts.Evidence{
		Hop: facts.Hop{Process: &facts.Process{
			At: now, PID: 812, Comm: "containerd", Alive: true, StartTicks: 4000, Threads: map[string]int{"S": 20},
			Start: now.Add(-time.Hour + time.Duration(now.Nanosecond()%997)), // it drifts, as computed times do
		}, Cgroup: &facts.Cgroup{At: now, Path: "/system.slice/containerd.service"}},
		KubeletProcess: &facts.KubeletProcess{PID: 900, StartTicks: 5000, Started: now.Add(-time.Hour)},
		Children:       &facts.Children{At: now, Shims: 3},
	}
}

// TestEnding: what ended an incident, by a sample of the time after it. Where nothing
// shows it, nothing is said.
func TestEnding(t *testing.T) {
	stopped := func(e *facts.Evidence) { e.Process.Threads = map[string]int{"T": 20} }
	gone := func(e *facts.Evidence) { e.Process.Alive = false }
	restarted := func(e *facts.Evidence) { e.Process.PID, e.Process.StartTicks = 4711, 9000 }
	nothing := func(*facts.Evidence) {}
	for name, tt := range map[string]struct {
		during, after func(*facts.Evidence)
		stale         bool // no sample after the end
		want          string
	}{
		"STOP and CONT":                          {stopped, nothing, false, "containerd, pid 812, was stopped and was continued. It was not restarted."},
		"TERM and start":                         {gone, restarted, false, "containerd was restarted: pid 812 before, pid 4711 since"},
		"KILL and start, seen when it ran again": {restarted, restarted, false, "containerd was restarted: pid 812 before, pid 4711 since"},
		"the same pid again": {gone, func(e *facts.Evidence) { e.Process.StartTicks = 9000 }, false,
			"containerd was restarted: pid 812 before, pid 812 since"},
		"shim continued": {func(e *facts.Evidence) {
			e.Children.Stuck = []facts.Child{{PID: 1000, Comm: "containerd-shim", State: "T"}}
		}, nothing, false, "containerd-shim, pid 1000, is no longer stopped."},
		"quota lifted": {func(e *facts.Evidence) { e.Cgroup.Throttled = 0.9 }, nothing, false,
			"Its CPU quota no longer throttles the cgroup /system.slice/containerd.service, which lost 90% of its time."},
		"thawed": {func(e *facts.Evidence) { e.Cgroup.Frozen = true }, nothing, false,
			"The cgroup /system.slice/containerd.service was frozen and was thawed."},
		"the kubelet restarted": {nothing, func(e *facts.Evidence) { e.KubeletProcess.PID, e.KubeletProcess.StartTicks = 901, 9000 }, false,
			"The kubelet was restarted: pid 900 before, pid 901 since"},
		"no change":        {nothing, nothing, false, ""},
		"unknown ticks":    {gone, func(e *facts.Evidence) { e.Process.PID, e.Process.StartTicks = 4711, 0 }, false, ""},
		"only old samples": {stopped, restarted, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				judge := func(state facts.State, change func(*facts.Evidence), reasons ...string) {
					n.facts.Evidence = sample()
					change(&n.facts.Evidence)
					n.judge(state, time.Second, reasons...)
				}
				judge(facts.StateHealthy, nothing)
				judge(facts.StateDegraded, tt.during, "A")
				n.well(time.Second) // the sample of before the end
				if n.List()[0].Outcome != Open {
					t.Error("closed before a new sample")
				}
				old := n.facts.Evidence
				for range 5 {
					if n.facts.Evidence = old; tt.stale {
						n.well(time.Second)
					} else {
						judge(facts.StateHealthy, tt.after)
					}
				}
				doc := n.one()
				if doc.Outcome != Recovered || doc.Duration != 1 {
					t.Errorf("%+v", doc.Summary)
				}
				if got := strings.Join(doc.Ending, " "); !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") || len(doc.Ending) > 1 {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}
