package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestFindSymptom: the call that hangs by the verdict comes before the primary reason's
// process and before a call that is only suspected, and one fault keeps its begin.
func TestFindSymptom(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	active := func(ids ...string) facts.Verdict {
		v := facts.Verdict{Reason: ids[0]}
		for i, id := range ids {
			v.Active = append(v.Active, facts.Active{ID: id, Since: ago(10 + i)})
		}
		return v
	}
	list := &facts.InFlight{Phase: facts.PhaseListContainers, PhaseStart: ago(12)}
	stuck := facts.PodInspection{UID: "u1", Operation: "container_status", Start: ago(9), CallStart: ago(8)}
	suspected := facts.Symptom{Operation: "list_containers", Since: ago(13), Called: ago(12), Suspected: true}
	for name, tt := range map[string]struct {
		relist facts.Relist
		status facts.Status
		starts time.Duration // a call of the kubelet for a sandbox that failed, 0 for none
		ended  *facts.Process
		v      facts.Verdict
		last   facts.Symptom
		want   facts.Symptom
	}{
		"nothing": {v: facts.Verdict{State: facts.StateHealthy}},
		"nothing answers, and a list hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall, RuntimeUnresponsive),
			want: facts.Symptom{Operation: facts.EveryCall, Since: ago(11), Called: ago(11)},
		},
		"nothing answers at a hop behind the runtime": {
			v: facts.Verdict{Reason: RuntimeUnresponsive, Active: []facts.Active{{ID: RuntimeUnresponsive, Hop: "/run/docker.sock"}}},
		},
		"a list hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall),
			want: facts.Symptom{Operation: "list_containers", Since: ago(10), Called: ago(12)},
		},
		"a list that was suspected hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall), last: suspected,
			want: facts.Symptom{Operation: "list_containers", Since: ago(13), Called: ago(12)},
		},
		"between two lists that hang": {
			v: active(RuntimeListStall), last: facts.Symptom{Operation: "list_podsandbox", Since: ago(20), Called: ago(19)},
			want: facts.Symptom{Operation: "list_podsandbox", Since: ago(20), Called: ago(19)},
		},
		"a list and an inspection hang": {
			relist: facts.Relist{InFlight: list, Inspecting: []facts.PodInspection{stuck}}, v: active(PodInspectionStall, RuntimeListStall),
			want: facts.Symptom{Operation: "list_containers", Since: ago(11), Called: ago(12)},
		},
		"an inspection hangs": {
			relist: facts.Relist{Inspecting: []facts.PodInspection{stuck}}, v: active(PodInspectionStall),
			want: facts.Symptom{Operation: "container_status", Since: ago(10), Called: ago(8), UID: "u1"},
		},
		"an inspection ran into its limit": {
			relist: facts.Relist{Failing: []facts.PodInspection{{UID: "u2", Operation: "podsandbox_status", Start: ago(9), Err: &facts.CallError{Code: "DeadlineExceeded"}}}},
			v:      active(PodInspectionStall),
			want:   facts.Symptom{Operation: "podsandbox_status", Since: ago(10), Called: ago(9), UID: "u2"},
		},
		"Status hangs": {
			status: facts.Status{InFlightSince: ago(6)}, v: active(RuntimeNotReady),
			want: facts.Symptom{Operation: opStatus, Since: ago(10), Called: ago(6)},
		},
		"between two Status that hang": {
			status: facts.Status{LastErr: &facts.CallError{Code: "DeadlineExceeded"}}, v: active(RuntimeNotReady),
			last: facts.Symptom{Operation: opStatus, Since: ago(20), Called: ago(7)},
			want: facts.Symptom{Operation: opStatus, Since: ago(20), Called: ago(7)},
		},
		"starts run into their deadlines": {
			starts: startSlow, v: active(PodStartsFailing), want: facts.Symptom{Process: 7, Since: ago(10), Starts: true},
		},
		"starts fail at once":                       {starts: time.Second, v: active(PodStartsFailing)},
		"Status says that the runtime is not ready": {v: active(RuntimeNotReady)},
		"a command runs before the runtime's next start": {
			ended: &facts.Process{PID: 7, Preparing: &facts.Child{PID: 9}}, v: active(RuntimeSocketMissing), want: facts.Symptom{Process: 9, Since: ago(10)},
		},
		"nothing runs before the runtime's next start": {ended: &facts.Process{PID: 7}, v: active(RuntimeNotListening)},
	} {
		f := facts.Facts{Relist: tt.relist, Status: tt.status}
		f.Evidence.Process = &facts.Process{PID: 7, Alive: true}
		if tt.ended != nil {
			f.Evidence.Process = tt.ended
		}
		if tt.starts != 0 {
			f.Evidence.Kubelet = &facts.Kubelet{Sandboxes: &facts.StartCalls{Longest: tt.starts}}
		}
		got, ok := FindSymptom(&f, &tt.v, now, tt.last)
		if got != tt.want || ok != (tt.want != facts.Symptom{}) {
			t.Errorf("%s: got %+v, %t\nwant %+v", name, got, ok, tt.want)
		}
	}
}

// TestPluginNext: the step follows from the error that containerd reports.
func TestPluginNext(t *testing.T) {
	for name, tt := range map[string]struct {
		plugin *facts.CRIPlugin
		want   string // a part of the step, "" for the page's
	}{
		"unknown":     {plugin: nil, want: ""},
		"snapshotter": {plugin: &facts.CRIPlugin{Error: `failed to find snapshotter "nydus"`}, want: "Start the snapshotter"},
		"inotify":     {plugin: &facts.CRIPlugin{Error: "failed to create fsnotify watcher: too many open files"}, want: "max_user_instances"},
		"runtime":     {plugin: &facts.CRIPlugin{Error: "invalid plugin config: default_runtime_name"}, want: "default runtime"},
		"disabled":    {plugin: &facts.CRIPlugin{Absent: true}, want: "disabled_plugins"},
		"other":       {plugin: &facts.CRIPlugin{Error: "something else"}, want: ""},
	} {
		w := &signals{f: &facts.Facts{CRIPlugin: tt.plugin}}
		got := w.pluginNext()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestWordsOfTheNode: a word is a value that the node shows, else the step that has it is left out.
func TestWordsOfTheNode(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	process := func(unit string, alive bool) *facts.Process {
		return &facts.Process{PID: 4711, Alive: alive, Unit: unit, MaxFDs: 1024, HardFDs: 524288}
	}
	limited := []facts.MemoryLimit{
		{Path: "/a.slice/b.service", Max: 100, Usage: 5},
		{Path: "/a.slice", Max: 100, Usage: 99},
	}
	for name, tt := range map[string]struct {
		hop                facts.Hop
		path, reason, step string
		chain              []facts.Link
		want               string // "" where the step is left out
	}{
		"a live runtime":              {hop: facts.Hop{Process: process("", true)}, path: socket, step: "kill -CONT {pid}; ss {socket}", want: "kill -CONT 4711; ss " + socket},
		"an ended runtime":            {hop: facts.Hop{Process: process("", false)}, path: socket, step: "kill -CONT {pid}"},
		"the unit by the cgroup":      {hop: facts.Hop{Process: process("", true), Cgroup: &facts.Cgroup{Path: "/system.slice/k3s.service/containerd"}}, path: socket, step: "{unit}", want: "k3s"},
		"the unit that last ran it":   {hop: facts.Hop{Process: process("rke2-server.service", false)}, path: "/run/k3s/containerd/containerd.sock", step: "{unit}", want: "rke2-server"},
		"no service runs it":          {hop: facts.Hop{Process: process("", true), Cgroup: &facts.Cgroup{Path: "/user.slice"}}, path: socket, step: "{unit}"},
		"never seen, usual path":      {path: socket, step: "{unit}", want: "containerd"},
		"never seen, /var/run":        {path: "/var/run/crio/crio.sock", step: "{unit}", want: "crio"},
		"never seen, a shared path":   {path: "/run/k3s/containerd/containerd.sock", step: "{unit}"},
		"more descriptors":            {hop: facts.Hop{Process: process("", true)}, step: "{fds}", want: "524288:524288"},
		"soft limit is the hard one":  {hop: facts.Hop{Process: &facts.Process{MaxFDs: 1048576, HardFDs: 1048576}}, step: "{fds}", want: "2097152:2097152"},
		"limit not readable":          {hop: facts.Hop{Process: &facts.Process{MaxFDs: -1}}, step: "{fds}"},
		"the level of a memory limit": {hop: facts.Hop{Cgroup: &facts.Cgroup{Path: "/a.slice/b.service", MemoryLimits: limited}}, reason: RuntimeMemoryLimited, step: "{levelunit}", want: "a.slice"},
		"the level of a kill":         {hop: facts.Hop{Cgroup: &facts.Cgroup{MemoryLimits: []facts.MemoryLimit{{Path: "/b.slice", Max: 100, OOMKills: 1}}}}, reason: RuntimeMemoryLimited, step: "{level} {levelunit}", want: "/b.slice b.slice"},
		"the level of a quota":        {hop: facts.Hop{Cgroup: &facts.Cgroup{ThrottledPath: "/system.slice"}}, reason: RuntimeThrottled, step: "{level} {levelunit}", want: "/system.slice system.slice"},
		"a level that is no unit":     {hop: facts.Hop{Cgroup: &facts.Cgroup{ThrottledPath: "/system.slice/k3s.service/containerd"}}, reason: RuntimeThrottled, step: "{levelunit}"},
		"a holder that is not known":  {hop: facts.Hop{Process: &facts.Process{Lock: &facts.LockWait{}}}, step: "ps -p {holder}"},
		"a holder that has ended":     {hop: facts.Hop{Process: &facts.Process{Lock: &facts.LockWait{HolderPID: 9}}}, step: "ps -p {holder}"},
		"the shell's braces":          {step: "cat /proc/pressure/{cpu,io,memory}", want: "cat /proc/pressure/{cpu,io,memory}"},
		"the shim of the chain":       {reason: ShimStuck, chain: []facts.Link{{Kind: facts.KindCall}, {Kind: facts.KindShim, PID: 12}}, step: "{shim}", want: "12"},
		"no shim":                     {reason: ShimStuck, step: "{shim}"},
		"the kubelet's unit":          {step: "{kubelet} {abortable}", want: "kubelet kubelet"},
		"the kubelet waits for NFS":   {chain: []facts.Link{{Kind: facts.KindProcess}, {Kind: facts.KindMount}}, step: "{abortable}"},
	} {
		f := facts.Facts{Endpoint: facts.Endpoint{Path: tt.path}, Evidence: facts.Evidence{Hop: tt.hop, KubeletUnit: "kubelet"}}
		got, known := nodeWords(&f, tt.reason, tt.chain).fill(tt.step)
		if known != (tt.want != "") || known && got != tt.want {
			t.Errorf("%s: %q, known %t, want %q", name, got, known, tt.want)
		}
	}
	f := facts.Facts{Evidence: facts.Evidence{KubeletUnit: "k3s"}}
	if _, known := nodeWords(&f, "", nil).fill("{abortable}"); known {
		t.Error("the unit of k3s runs more than the kubelet")
	}
}

// TestLiveRestoreFirst: the look at live-restore comes before the step that restarts dockerd.
func TestLiveRestoreFirst(t *testing.T) {
	for unit, want := range map[string]bool{"docker.service": true, "containerd.service": false} {
		f := facts.Facts{Evidence: facts.Evidence{Hop: facts.Hop{Process: &facts.Process{PID: 1, Alive: true, Comm: "dockerd", Unit: unit}}}}
		steps := strings.Join(stepsOf(&facts.Verdict{Reason: RuntimeUnresponsive}, &f), "\n")
		look, restart, found := strings.Cut(steps, "systemctl restart")
		if !found || strings.Contains(look, "LiveRestoreEnabled") != want || strings.Contains(restart, "LiveRestoreEnabled") {
			t.Errorf("%s: %s", unit, steps)
		}
	}
}
