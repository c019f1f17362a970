package incident

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
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

// disk is the runtime's file system.
func disk(free int64) *facts.Storage {
	return &facts.Storage{At: time.Now(), FileSystems: []facts.FileSystem{{
		Directory: "/var/lib/containerd", Bytes: 8 << 30, FreeBytes: free, Inodes: 1000, FreeInodes: 900,
	}}}
}

// hop is dockerd behind the runtime.
func hop(pid int) []facts.Hop {
	p := facts.Process{At: time.Now(), PID: pid, Comm: "dockerd", Alive: true, StartTicks: uint64(pid)}
	return []facts.Hop{{Socket: "/run/docker.sock", Process: &p}}
}

// TestEndingOfCulprit: what became of the end of the chain, where nothing else shows it.
func TestEndingOfCulprit(t *testing.T) {
	stopped := facts.Link{Kind: facts.KindProcess, Name: "peer", PID: 1200, State: facts.LinkStopped}
	alive := Sighting{Known: true, Alive: true, Comm: "peer"}
	for name, tt := range map[string]struct {
		culprit facts.Link
		seen    Sighting
		want    string
	}{
		"a thaw": {facts.Link{Kind: facts.KindMount, Name: "/data", State: facts.LinkFrozen}, Sighting{},
			"The mount /data was frozen and was thawed: the calls that waited for it are answered."},
		"a disk that answers": {facts.Link{Kind: facts.KindMount, Name: "/nfs", State: facts.LinkBlocked}, Sighting{},
			"The mount /nfs did not answer and answers: the calls that waited for it are answered."},
		"a peer continued": {stopped, alive, "The process peer, pid 1200, was stopped and was continued."},
		"a peer killed":    {stopped, Sighting{Known: true}, "The process peer, pid 1200, has ended."},
		"its pid reused":   {stopped, Sighting{Known: true, Alive: true, Comm: "other"}, "The process peer, pid 1200, has ended."},
		"still stopped":    {stopped, Sighting{Known: true, Alive: true, Comm: "peer", Stopped: true}, ""},
		"not to be seen":   {stopped, Sighting{}, ""},
		"a peer that did not read": {facts.Link{Kind: facts.KindProcess, Name: "peer", PID: 1200, State: facts.LinkUnread}, alive,
			"The process peer, pid 1200, still runs and no longer holds anything up."},
		"a name with a line break": {facts.Link{Kind: facts.KindProcess, Name: "a\\nb", PID: 1200, State: facts.LinkStopped},
			Sighting{Known: true, Alive: true, Comm: "a\nb"}, "The process a\\nb, pid 1200, was stopped and was continued."},
		"a peer in a cgroup": {facts.Link{Kind: facts.KindHelper, Name: "peer", PID: 1200, State: facts.LinkFrozen}, alive,
			"The helper peer, pid 1200, was frozen and was thawed."},
	} {
		run(t, func(n *node) {
			n.seen = map[int]Sighting{1200: tt.seen}
			n.facts.Evidence = sample()
			n.well(time.Second)
			n.culprit = &tt.culprit
			n.degraded(time.Second, "A")
			n.facts.Evidence = sample()
			n.well(10 * time.Second)
			check.Equal(t, strings.Join(n.one().Ending, " "), tt.want, "%s", name)
		})
	}
}

// TestEvidence: the snapshot of the incident's reason with the longest chain to a culprit counts,
// and not the newest one with a culprit.
func TestEvidence(t *testing.T) {
	moment := func(reason, end string, links int) Moment {
		s := &facts.Snapshot{Verdict: facts.Verdict{Reason: reason, WaitChain: facts.WaitChain{ChainEnd: end, Chain: make([]facts.Link, links)}}}
		if links > 0 {
			s.Culprit = &s.Chain[links-1]
		}
		return Moment{Snapshot: s}
	}
	for name, tt := range map[string]struct {
		moments []Moment
		want    int
	}{
		"the longest chain":  {[]Moment{moment("A", "", 0), moment("A", "", 4), moment("A", "", 2)}, 1},
		"of another reason":  {[]Moment{moment("A", "", 2), moment("B", "", 5)}, 0},
		"one with a culprit": {[]Moment{moment("A", "denied", 6), moment("A", "", 2)}, 1},
		"the first of many":  {[]Moment{moment("B", "", 1), moment("A", "", 2), moment("A", "", 2)}, 1},
	} {
		one := &Incident{Summary: Summary{Reason: "A"}, Timeline: tt.moments}
		check.Equal(t, one.Evidence(), tt.moments[tt.want].Snapshot, "%s: another moment", name)
	}
}

// TestEnding: what ended an incident, by a sample of the time after it. Where nothing
// shows it, nothing is said.
func TestEnding(t *testing.T) {
	type change = func(*facts.Evidence)
	stopped := func(e *facts.Evidence) { e.Process.Threads = map[string]int{"T": 20} }
	gone := func(e *facts.Evidence) { e.Process.Alive = false }
	restarted := func(e *facts.Evidence) { e.Process.PID, e.Process.StartTicks = 4711, 9000 }
	open := func(files, limit int) change {
		return func(e *facts.Evidence) { e.Process.OpenFDs, e.Process.MaxFDs = files, limit }
	}
	free := func(bytes int64) change { return func(e *facts.Evidence) { e.Storage = disk(bytes) } }
	frozen := func(path string) change {
		return func(e *facts.Evidence) { e.Cgroup.Frozen, e.Cgroup.Path = true, path }
	}
	behind := func(pid int, change func(*facts.Hop)) change {
		return func(e *facts.Evidence) {
			e.Hops = hop(pid)
			change(&e.Hops[0])
		}
	}
	well := func(*facts.Hop) {}
	const service = "/system.slice/containerd.service"
	down := func(f *facts.Facts) {
		f.Status.NetworkReady = &facts.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}
	}
	unlinked := func(f *facts.Facts) {
		f.Probe = facts.Probe{Cause: facts.CauseMissing, FailedSince: time.Now()}
	}
	for name, tt := range map[string]struct {
		before, during, after change // nil: nothing
		report                func(*facts.Facts)
		reason                string // "": A
		stale                 bool   // no sample after the end
		want                  string
	}{
		"STOP and CONT":                          {during: stopped, want: "containerd, pid 812, was stopped and was continued. It was not restarted."},
		"TERM and start":                         {during: gone, after: restarted, want: "containerd was restarted: pid 812 before, pid 4711 since"},
		"KILL and start, seen when it ran again": {during: restarted, after: restarted, want: "containerd was restarted: pid 812 before, pid 4711 since"},
		"KILL and start, seen dead before a call fails": {before: gone, during: gone, after: restarted,
			want: "containerd was restarted: pid 812 before, pid 4711 since"},
		"the same pid again": {during: gone, after: func(e *facts.Evidence) { e.Process.StartTicks = 9000 },
			want: "containerd was restarted: pid 812 before, pid 812 since"},
		"shim continued": {during: func(e *facts.Evidence) {
			e.Children.Stuck = []facts.Child{{PID: 1000, Comm: "containerd-shim", State: "T"}}
		}, want: "containerd-shim, pid 1000, is no longer stopped."},
		"quota lifted": {during: func(e *facts.Evidence) { e.Cgroup.Throttled = 0.9 },
			want: "Its CPU quota no longer throttles the cgroup " + service + ", which lost 90% of its time."},
		"thawed":                {during: frozen(service), want: "The cgroup " + service + " was frozen and was thawed."},
		"one above it thawed":   {during: frozen("/system.slice"), want: "The cgroup /system.slice was frozen and was thawed."},
		"of v1's freezer":       {during: frozen("/frozen"), want: "The cgroup /frozen was frozen and was thawed."},
		"killed in the freezer": {during: frozen("/frozen"), after: restarted, want: "containerd was restarted: pid 812 before, pid 4711 since"},
		"the kubelet restarted": {after: func(e *facts.Evidence) { e.KubeletProcess.PID, e.KubeletProcess.StartTicks = 901, 9000 },
			want: "The kubelet was restarted: pid 900 before, pid 901 since"},
		"disk freed": {during: free(4 << 20), after: free(4 << 30),
			want: "The file system of /var/lib/containerd had 4.0 MiB free and has 4096.0 MiB."},
		"a hundredth of a disk freed": {during: free(4 << 20), after: free(200 << 20),
			want: "The file system of /var/lib/containerd had 4.0 MiB free and has 200.0 MiB."},
		"STOP and CONT beside a disk that is filled well": {during: func(e *facts.Evidence) {
			stopped(e)
			e.Storage = disk(400 << 20)
		}, after: free(4 << 30), want: "containerd, pid 812, was stopped and was continued. It was not restarted."},
		"inodes freed": {during: func(e *facts.Evidence) {
			e.Storage = disk(4 << 30)
			e.Storage.FileSystems[0].FreeInodes = 3
		}, after: free(4 << 30), want: "The file system of /var/lib/containerd had 3 inodes free and has 900."},
		"remounted": {during: func(e *facts.Evidence) {
			e.Storage = disk(4 << 30)
			e.Storage.FileSystems[0].ReadOnly = true
		}, after: free(4 << 30), want: "The file system of /var/lib/containerd was read-only and can be written."},
		"limit of files raised": {during: open(72, 72), after: open(90, 1024),
			want: "The limit of open files of containerd, pid 812, was raised from 72 to 1024."},
		"files closed":                       {during: open(72, 72), after: open(30, 72), want: "containerd, pid 812, had 72 of 72 files open and has 30."},
		"the last fifth of the files closed": {during: open(210, 256), after: open(30, 256), want: "containerd, pid 812, had 210 of 256 files open and has 30."},
		"files no longer readable":           {during: open(72, 72), after: open(-1, -1)},
		"memory limit lifted": {during: func(e *facts.Evidence) { e.Cgroup.MemoryLimits = []facts.MemoryLimit{{Path: "/x", Max: 1}} },
			after: func(e *facts.Evidence) { e.Cgroup.MemoryLimits = []facts.MemoryLimit{{Path: "/x"}} }, want: "The memory limit of the cgroup /x was raised."},
		"limit of tasks raised": {during: func(e *facts.Evidence) { e.Cgroup.PIDsMax = 40 }, after: func(e *facts.Evidence) { e.Cgroup.PIDsMax = 400 },
			want: "The limit of 40 tasks of the cgroup " + service + " was raised."},
		"helper stopped": {during: func(e *facts.Evidence) { e.Children.Old = []facts.Child{{PID: 1001, Comm: "unpigz", State: "T"}} }, want: "unpigz, pid 1001, no longer stands still."},
		"helper killed":  {during: func(e *facts.Evidence) { e.Children.Old = []facts.Child{{PID: 1001, Comm: "runc"}} }, want: "runc, pid 1001, has ended."},
		"dockerd restarted": {before: behind(700, well), during: behind(700, well), after: behind(701, well),
			want: "dockerd was restarted: pid 700 before, pid 701 since"},
		"dockerd continued": {before: behind(700, well), after: behind(700, well),
			during: behind(700, func(h *facts.Hop) { h.Process.Threads = map[string]int{"T": 9} }),
			want:   "dockerd, pid 700, was stopped and was continued. It was not restarted."},
		"a full pipe read": {reason: health.RuntimeThreadStuck, during: func(e *facts.Evidence) {
			e.Process.Blocked = []facts.BlockedThread{{TID: 813, Channel: "anon_pipe_write"}}
		}, want: "Thread 813 of containerd, pid 812, no longer waits in anon_pipe_write."},
		"a lock released": {reason: health.RuntimeStorageLocked, during: func(e *facts.Evidence) {
			e.Process.Lock = &facts.LockWait{HolderPID: 5, File: "/var/lib/containerd/meta.db"}
		}, want: "containerd, pid 812, waited for a lock of /var/lib/containerd/meta.db, which was released."},
		"a thread that the reason is not about": {during: func(e *facts.Evidence) {
			e.Process.Blocked = []facts.BlockedThread{{TID: 813, Channel: "anon_pipe_write"}}
		}},
		"the network plugin is back": {report: down,
			want: "Status says NetworkReady=true; it said NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized."},
		"the socket is back": {report: unlinked, want: "Fresh connections to /run/x.sock failed (missing) and are answered."},
		"the socket is back after a restart": {report: unlinked, during: gone, after: restarted,
			want: "containerd was restarted: pid 812 before, pid 4711 since"},
		"no change":        {},
		"unknown ticks":    {during: gone, after: func(e *facts.Evidence) { e.Process.PID, e.Process.StartTicks = 4711, 0 }},
		"only old samples": {during: stopped, after: restarted, stale: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				judge := func(state facts.State, change change, reasons ...string) {
					n.facts.Evidence = sample()
					if change != nil {
						change(&n.facts.Evidence)
					}
					n.judge(state, time.Second, reasons...)
				}
				n.facts.Probe.OK = true
				n.facts.Status.NetworkReady = &facts.Condition{Status: true}
				calm := n.facts
				judge(facts.StateHealthy, tt.before)
				if tt.report != nil {
					tt.report(&n.facts)
				}
				judge(facts.StateDegraded, tt.during, cmp.Or(tt.reason, "A"))
				calm.Evidence = n.facts.Evidence
				n.facts = calm
				check.Equal(t, n.Recovering(), false, "it has not ended")
				n.well(time.Second) // the sample of before the end
				check.Equal(t, n.List()[0].Outcome, Open, "closed before a new sample")
				check.Equal(t, n.Recovering(), true, "a new sample is awaited")
				old := n.facts.Evidence
				for range 5 {
					if n.facts.Evidence = old; tt.stale {
						n.well(time.Second)
					} else {
						judge(facts.StateHealthy, tt.after)
					}
				}
				doc := n.one()
				if doc.Outcome != Recovered || doc.Duration != 1 || n.Recovering() {
					t.Errorf("%+v", doc.Summary)
				}
				if got := strings.Join(doc.Ending, " "); !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") || len(doc.Ending) > 1 {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}
