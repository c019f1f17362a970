package health

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
)

// TestStepsHaveTheNodesValues: a step can be pasted on the node that it is for.
func TestStepsHaveTheNodesValues(t *testing.T) {
	f := &facts.Facts{
		Endpoint: facts.Endpoint{Path: "/run/k3s/containerd/containerd.sock"},
		Runtime:  facts.Runtime{Name: "containerd", Version: "v1.7.23-k3s2"},
		Evidence: facts.Evidence{Hop: facts.Hop{
			Process: &facts.Process{PID: 4711, Alive: true},
			Cgroup:  &facts.Cgroup{Path: "/system.slice/k3s.service/containerd"},
		}},
	}
	const step = "`kill -CONT {pid}`, `systemctl restart {unit}`, `ss -xl | grep {socket}`"
	want := "`kill -CONT 4711`, `systemctl restart k3s`, `ss -xl | grep /run/k3s/containerd/containerd.sock`"
	if got := nodeSteps(f, nil).Replace(step); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	f.Evidence = facts.Evidence{Hop: facts.Hop{Process: &facts.Process{PID: 4711}}}
	want = "`kill -CONT PID`, `systemctl restart containerd`, `ss -xl | grep /run/k3s/containerd/containerd.sock`"
	if got := nodeSteps(f, nil).Replace(step); got != want {
		t.Errorf("of a process that is gone: got  %s\nwant %s", got, want)
	}
	for name, unit := range map[string]string{"cri-o": "crio", "docker": "docker", "something": "UNIT"} {
		f.Runtime.Name = name
		if got := nodeSteps(f, nil).Replace("{unit}"); got != unit {
			t.Errorf("the unit of %s is %s, want %s", name, got, unit)
		}
	}
}

// TestStepsOfAChain: a step that is about a shim has the pid of the chain's.
func TestStepsOfAChain(t *testing.T) {
	v := facts.Verdict{Reason: ShimStuck, Chain: []facts.Link{{Kind: facts.KindCall}, {Kind: facts.KindRuntime, PID: 1}, {Kind: facts.KindShim, PID: 4711}, {Kind: facts.KindMount}}}
	if got := stepsOf(&v, &facts.Facts{})[1]; !strings.HasPrefix(got, "`kill -CONT 4711` if") {
		t.Errorf("got %s", got)
	}
	v.Chain = v.Chain[:2]
	if got := stepsOf(&v, &facts.Facts{})[1]; !strings.HasPrefix(got, "`kill -CONT PID` if") {
		t.Errorf("without the shim: got %s", got)
	}
}

// TestStepsOfASubject: without a chain the pid is that of the reason's subject.
func TestStepsOfASubject(t *testing.T) {
	f := facts.Facts{Evidence: facts.Evidence{
		Children: &facts.Children{Stuck: []facts.Child{{PID: 11}}, Old: []facts.Child{{PID: 12}}},
	}}
	for reason, want := range map[string]string{ShimStuck: "-p 11`", RuntimeHelperStuck: "-p 12`"} {
		if got := stepsOf((&facts.Verdict{Reason: reason}), &f)[0]; !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}
