//go:build e2e

package vm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	// namedWithin is how long plegd may take to name a fault, wellWithin to be
	// healthy after its end, in a machine that is ten times slower than most.
	namedWithin = 3 * time.Minute
	wellWithin  = 5 * time.Minute
	podsAtStart = 3
	// hold is how long a fault lasts after it was named: its name must stay.
	hold = 10 * time.Second
)

// fault is a fault in the machine, and the reason that plegd must report.
type fault struct {
	name string
	// want is the primary reason, evidence what must stand in its evidence.
	want     string
	evidence string
	// onTheWay may be primary beside want and the symptoms while the fault lasts,
	// onTheWayBack after it: reasons that are true of the node at that moment. Any
	// other reason fails the test.
	onTheWay, onTheWayBack []string
	// prepare is done before; inject makes the fault and returns what ends it.
	prepare func(*bench)
	inject  func(*bench) (undo func())
}

// symptoms are what every fault that keeps the runtime from answering looks like
// before its cause is seen, and for a moment after its end.
var symptoms = []string{"RuntimeUnresponsive", "RuntimeListStall", "RelistSlow"}

// busyHost are true of this machine whenever the host has other work.
var busyHost = []string{"NodePressure"}

// bench is the machine within one test.
type bench struct {
	t *testing.T
	*machine
	cri *lab.CRI
}

// ensurePods makes pods where there are none since the last boot: each takes a
// quarter of a minute in there.
func (b *bench) ensurePods() {
	b.t.Helper()
	running := b.cri.Containers()["running"]
	b.cri.RunPods(max(0, podsAtStart-running), 1)
}

func (b *bench) do(script string) string {
	b.t.Helper()
	return b.run(b.t, script)
}

// undo runs a script in the machine, at the end of a fault or, when the test
// fails before it, at the end of the test.
func (b *bench) undo(script string) func() {
	done := false
	undo := func() {
		if !done {
			done = true
			b.do(script)
		}
	}
	b.t.Cleanup(func() {
		if !done {
			if out, err := b.try(script); err != nil {
				b.t.Logf("undo: %s: %v\n%s", script, err, out)
			}
		}
	})
	return undo
}

func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) { f.test(t) })
	}
}

func (f fault) test(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	b.cri = b.CRI(t)
	if f.prepare != nil {
		f.prepare(b)
	}
	b.ensurePods()
	b.awaitHealthy(t)
	w := b.watch(t)
	before := b.incidents(t)

	began := time.Now()
	undo := f.inject(b)
	evidence := regexp.MustCompile(f.evidence)
	named := w.await(began, namedWithin, f.want+" is primary, with the evidence "+f.evidence, func(s lab.Sight) bool {
		return s.Reason == f.want && evidence.MatchString(strings.Join(evidenceOf(s, f.want), "; "))
	})
	t.Logf("%s: %q", f.want, evidenceOf(named, f.want))
	w.await(named.At, hold+wellWithin, "the fault lasts for a while", func(s lab.Sight) bool { return s.At.Sub(named.At) >= hold })
	undo()
	ended := time.Now()
	back := w.awaitCalm(ended, wellWithin)

	sights := w.since(began)
	t.Logf("%s", lab.Story(sights, began))
	for _, s := range sights {
		allowed := slices.Concat([]string{"", f.want}, symptoms, busyHost, f.onTheWay)
		if s.At.After(ended) {
			allowed = append(allowed, f.onTheWayBack...)
		}
		if !slices.Contains(allowed, s.Reason) {
			t.Errorf("%s after the fault, %s after its end, the primary reason is %s: %+v", s.At.Sub(began).Round(time.Second), s.At.Sub(ended).Round(time.Second), s.Reason, s.Reasons)
			break
		}
	}
	b.incidentOf(t, before, f.want, "recovered")
	others := slices.DeleteFunc(lab.Reasons(sights), func(r string) bool { return r == f.want })
	lab.ReportFault(t, f.name, strings.Join(append([]string{f.want}, others...), ", "), seconds(named.At.Sub(began)), seconds(back))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// incident is the part of an incident that the tests read.
type incident struct {
	ID       string  `json:"id"`
	Outcome  string  `json:"outcome"`
	Reason   string  `json:"reason"`
	Duration float64 `json:"duration_seconds"`
	Stored   bool    `json:"stored"`
	Reasons  []struct {
		ID      string  `json:"id"`
		Primary float64 `json:"primary_seconds"`
	} `json:"reasons"`
}

// incidents are those that plegd lists, newest first. The machine may be so busy
// that an answer takes longer than the limit of `plegd incidents`.
func (m *machine) incidents(t testing.TB) (all []incident) {
	t.Helper()
	lab.Eventually(t, answerLimit, "plegd lists its incidents", func() error {
		all = nil
		return m.get("/api/v1/incidents", &all)
	})
	return all
}

// newIncidents are those that were not there before, newest first. They are not
// simply the first: the machine's clock may have been set back.
func newIncidents(all, before []incident) []incident {
	return slices.DeleteFunc(slices.Clone(all), func(i incident) bool {
		return slices.ContainsFunc(before, func(b incident) bool { return b.ID == i.ID })
	})
}

// incidentOf waits until there is one incident more than before, in which a
// reason was primary and which ended so.
func (m *machine) incidentOf(t testing.TB, before []incident, reason, outcome string) {
	t.Helper()
	lab.Eventually(t, time.Minute, "the fault is an incident", func() error {
		all := m.incidents(t)
		for _, i := range newIncidents(all, before) {
			for _, r := range i.Reasons {
				if r.ID == reason && r.Primary > 0 && i.Outcome == outcome {
					return nil
				}
			}
		}
		return fmt.Errorf("there were %d incidents, and are %+v", len(before), all)
	})
}
