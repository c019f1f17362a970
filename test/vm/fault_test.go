//go:build e2e

package vm

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

const (
	// namedWithin is how long plegd may take to name a fault, wellWithin to be healthy
	// after its end, in a machine that is ten times slower than most.
	namedWithin = 3 * time.Minute
	wellWithin  = 5 * time.Minute
	podsAtStart = 3
	// hold is how long a fault lasts after it was named: its name must stay.
	hold = 10 * time.Second

	containerd = "containerd.service"
)

// fault is a fault in the machine, and the reason that plegd must report.
type fault struct {
	name string
	// want is the primary reason, evidence a pattern that its evidence must match.
	want, evidence string
	// onTheWay may be primary beside want and the symptoms, after the fault too: reasons
	// that are true of the node at that moment. Any other reason fails the test.
	onTheWay []string
	// inject makes the fault and returns what ends it.
	inject func(*bench) (undo func())
}

var (
	// symptoms are shown by every fault that keeps the runtime from answering before its
	// cause is seen, and for a moment after its end.
	symptoms = []string{"RuntimeUnresponsive", "RuntimeListStall", "RelistSlow"}
	// busyHost are true of this machine whenever the host has other work.
	busyHost = []string{"NodePressure"}
)

// faults are those that need cgroup v2, systemd as the owner of the cgroups, or a disk to
// break.
var faults = []fault{
	{name: "CPUQuota=1% on the unit", want: "RuntimeThrottled", evidence: "throttled for", inject: property("CPUQuota", containerd, "1%")},
	{name: "CPUQuota=1% on the unit's slice", want: "RuntimeThrottled", evidence: "throttled for", inject: property("CPUQuota", "runtime.slice", "1%")},
	{name: "systemctl freeze", want: "RuntimeFrozen", evidence: "cgroup of pid .* is frozen: .*containerd.service",
		inject: script("systemctl freeze "+containerd, "systemctl thaw "+containerd)},
	{name: "cgroup.freeze of the unit's slice", want: "RuntimeFrozen", evidence: "is frozen: /runtime.slice",
		inject: script("echo 1 >/sys/fs/cgroup/runtime.slice/cgroup.freeze", "echo 0 >/sys/fs/cgroup/runtime.slice/cgroup.freeze")},
	{name: "MemoryHigh=4M", want: "RuntimeMemoryLimited", evidence: `of its throttling limit \(high\) 4\.0 MiB`, inject: property("MemoryHigh", containerd, "4M")},
	// Without swap the kernel soon kills the runtime, and systemd starts it again. A relist
	// does not fit into 10 MiB beside the kernel's part; in 4 MiB it is killed all the same.
	// The node's own pressure is that of the last 10 s, and counts this cgroup's.
	{name: "MemoryMax below the working set, with swap", want: "RuntimeMemoryLimited", evidence: `of its limit \(max\)`, inject: func(b *bench) func() {
		off := script("dd if=/dev/zero of=/var/swap bs=1M count=256 status=none && chmod 600 /var/swap && mkswap -q /var/swap && swapon /var/swap",
			"swapoff /var/swap && rm /var/swap")(b)
		kernel, err := strconv.ParseInt(b.do("sed -n 's/^kernel //p' /sys/fs/cgroup/runtime.slice/containerd.service/memory.stat"), 10, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		lift := property("MemoryMax", containerd, strconv.FormatInt(kernel+10<<20, 10))(b)
		return func() {
			lift()
			off()
		}
	}},
	{name: "TasksMax reached", want: "KernelLimitReached", evidence: "tasks of the runtime's cgroup: ", inject: func(b *bench) func() {
		return property("TasksMax", containerd, b.property(b.t, containerd, "TasksCurrent"))(b)
	}},
	{name: "io.max on containerd's disk", want: "RuntimeStorageStall", evidence: "in D for",
		inject: withPod(property("IOWriteBandwidthMax", containerd, "/dev/vdb 512"))},
	{name: "fsfreeze of containerd's disk", want: "RuntimeStorageStall", evidence: "in D for",
		inject: withPod(script("fsfreeze --freeze /var/lib/containerd", "fsfreeze --unfreeze /var/lib/containerd"))},
	// AcceptStalled: until the process has been sampled, which takes seconds in this machine.
	{name: "LimitNOFILE=256 and 400 idle connections", want: "AcceptFDExhausted", evidence: "256", onTheWay: []string{"FDsRunningOut", "AcceptStalled"},
		inject: func(b *bench) func() {
			b.dropIn("[Service]\nLimitNOFILE=256\n")
			b.ready()
			return script("systemd-run --quiet --unit=idle --collect perl -MIO::Socket::UNIX -e '"+
				`push @held, IO::Socket::UNIX->new(Peer => "/run/containerd/containerd.sock") for 1 .. 400; sleep`+"'", "systemctl stop idle")(b)
		}},
}

// script makes a fault by one script and ends it by another.
func script(inject, undo string) func(*bench) func() {
	return func(b *bench) func() {
		b.do(inject)
		return b.undo(undo)
	}
}

// property sets a property of a unit until the next boot.
func property(name, unit, value string) func(*bench) func() {
	return script(fmt.Sprintf("systemctl set-property --runtime %s '%s=%s'", unit, name, value), fmt.Sprintf("systemctl set-property --runtime %s %s=", unit, name))
}

// withPod asks for a pod and does not wait for it: its start hangs on the fault, and is
// over after it.
func withPod(inject func(*bench) func()) func(*bench) func() {
	return func(b *bench) func() {
		undo := inject(b)
		ctx, cancel := context.WithTimeout(context.Background(), namedWithin+wellWithin)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if p, err := b.cri.TryRunPod(ctx); err == nil {
				p.Discard()
			}
		}()
		b.t.Cleanup(func() {
			<-done
			cancel()
		})
		return undo
	}
}

// bench is the machine within one test.
type bench struct {
	t *testing.T
	*machine
	cri *lab.CRI
}

func (b *bench) do(script string) string {
	b.t.Helper()
	return b.run(b.t, script)
}

// undo runs a script in the machine, at the end of a fault or, when the test fails before
// it, at the end of the test.
func (b *bench) undo(script string) func() {
	done := false
	b.t.Cleanup(func() {
		if done {
			return
		}
		if out, err := b.try(script); err != nil {
			b.t.Logf("undo: %s: %v\n%s", script, err, out)
		}
	})
	return func() {
		if !done {
			done = true
			b.do(script)
		}
	}
}

// dropIn restarts containerd with settings of the test's own, until its end; plegd as well,
// which counts the restarts of containerd.
func (b *bench) dropIn(text string) {
	b.t.Helper()
	const dir = "/run/systemd/system/" + containerd + ".d"
	const restart = "systemctl daemon-reload && systemctl restart " + containerd + " && systemctl restart plegd"
	b.do(fmt.Sprintf("mkdir -p %s && printf '%%s' '%s' >%s/test.conf && %s", dir, text, dir, restart))
	b.t.Cleanup(func() { b.do("rm " + dir + "/test.conf && " + restart) })
}

// ready makes pods where there are none since the last boot (each takes a quarter of a
// minute in there), and waits until all is well.
func (b *bench) ready() {
	b.t.Helper()
	b.cri.RunPods(max(0, podsAtStart-b.cri.Containers()["running"]), 1)
	b.awaitHealthy(b.t)
}

func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), f.test)
	}
}

func (f fault) test(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	b.cri = b.CRI(t)
	b.ready()
	w := b.watch(t)
	before := b.incidents(t)

	began := time.Now()
	undo := f.inject(b)
	evidence := regexp.MustCompile(f.evidence)
	named := w.Await(began, namedWithin, f.want+" is primary, with the evidence "+f.evidence, func(s lab.Sight) bool {
		return s.Reason == f.want && evidence.MatchString(s.Evidence())
	})
	t.Logf("%s: %q", f.want, named.Evidence())
	w.Await(named.At, hold+wellWithin, "the fault lasts for a while", func(s lab.Sight) bool { return s.At.Sub(named.At) >= hold })
	undo()
	ended := time.Now()
	back := calmSince(t, w, ended)

	sights := w.Sights(began)
	t.Logf("%s", lab.Story(sights, began))
	allowed := slices.Concat([]string{"", f.want}, symptoms, busyHost, f.onTheWay)
	for _, reason := range lab.Reasons(sights) {
		if !slices.Contains(allowed, reason) {
			t.Errorf("the primary reason was %s too", reason)
		}
	}
	b.incidentOf(t, before, f.want)
	others := slices.DeleteFunc(lab.Reasons(sights), func(r string) bool { return r == f.want })
	lab.Report(t, "fault %s: named %s after %.1f s, healthy after %.1f s", f.name, strings.Join(append([]string{f.want}, others...), ", "),
		named.At.Sub(began).Seconds(), back.Seconds())
}

// incidents are those that plegd lists, newest first. The machine may be so busy that an
// answer takes longer than the limit of `plegd incidents`.
func (m *machine) incidents(t testing.TB) (all []incident.Summary) {
	t.Helper()
	lab.Eventually(t, answerLimit, "plegd lists its incidents", func() error {
		all = nil
		return lab.GetJSON(m.client, m.web+"/api/v1/incidents", &all)
	})
	return all
}

// newIncidents are those that were not there before, newest first. They are not simply
// the first: the machine's clock may have been set back.
func (m *machine) newIncidents(t testing.TB, before []incident.Summary) []incident.Summary {
	t.Helper()
	return slices.DeleteFunc(m.incidents(t), func(i incident.Summary) bool {
		return slices.ContainsFunc(before, func(b incident.Summary) bool { return b.ID == i.ID })
	})
}

// incidentOf waits until there is one incident more than before, in which a reason was
// primary and which ended by the recovery.
func (m *machine) incidentOf(t testing.TB, before []incident.Summary, reason string) (found incident.Summary) {
	t.Helper()
	lab.Eventually(t, time.Minute, "the fault is an incident", func() error {
		all := m.newIncidents(t, before)
		for _, i := range all {
			for _, r := range i.Reasons {
				if r.ID == reason && r.Primary > 0 && i.Outcome == incident.Recovered {
					found = i
					return nil
				}
			}
		}
		return fmt.Errorf("there were %d incidents, the new ones are %+v", len(before), all)
	})
	return found
}
