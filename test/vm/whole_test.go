//go:build e2e

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

// pause is how long the machine does not run in the tests that stop it: longer than the
// kubelet's 30 s for a Status, and than most watchdogs.
const pause = time.Minute

// quiet fails the test unless plegd has been healthy all the time since a moment, is the
// same process as before and has recorded no incident.
type quiet struct {
	*bench
	w        *lab.Watch
	began    time.Time
	process  string
	recorded []incident.Summary
}

func newQuiet(t *testing.T) *quiet {
	b := &bench{t: t, machine: theMachine(t)}
	return &quiet{bench: b, w: b.watch(t), began: time.Now(), process: b.property(t, "plegd", "MainPID"), recorded: b.incidents(t)}
}

// check waits until plegd has done relists after a moment, and looks back.
func (q *quiet) check(from time.Time) {
	q.t.Helper()
	first := q.w.Await(from, wellWithin, "plegd answers", func(lab.Sight) bool { return true })
	q.w.Await(from, wellWithin, "five more relists", func(s lab.Sight) bool { return s.Relist.Attempts >= first.Relist.Attempts+5 })
	calmSince(q.t, q.w, from)
	for _, reason := range lab.Reasons(q.w.Sights(q.began)) {
		if !slices.Contains(busyHost, reason) {
			q.t.Errorf("plegd was not healthy throughout: %s", history(q.w.Sights(q.began), q.began))
			break
		}
	}
	if now := q.property(q.t, "plegd", "MainPID"); now != q.process {
		q.t.Errorf("plegd is process %s, and was %s: it has been restarted\n%s", now, q.process, q.do("journalctl -b -u plegd -n 40 --no-pager"))
	}
	for _, i := range q.newIncidents(q.t, q.recorded) {
		if !slices.Contains(busyHost, i.Reason) {
			q.t.Errorf("an incident has been recorded: %+v", i)
		}
	}
}

// TestPausedMachine stops qemu itself, as a host without CPU time for a guest does: the
// machine's clocks have advanced when it runs again.
func TestPausedMachine(t *testing.T) {
	q := newQuiet(t)
	_ = syscall.Kill(q.qemu.pid, syscall.SIGSTOP)
	time.Sleep(pause)
	_ = syscall.Kill(q.qemu.pid, syscall.SIGCONT)
	q.check(time.Now())
}

// TestClockSteps sets the machine's clock forward and back by an hour, while all is well
// and within a fault.
func TestClockSteps(t *testing.T) {
	q := newQuiet(t)
	for _, step := range []string{"+1 hour", "-1 hour"} {
		q.do("date --set '" + step + "'")
		q.check(time.Now())
	}

	// Within a fault: how long it has lasted does not follow the clock.
	for _, step := range []string{"+1 hour", "-1 hour"} {
		before := q.incidents(t)
		began := time.Now()
		thaw := script("systemctl freeze "+containerd, "systemctl thaw "+containerd)(q.bench)
		frozen := func(s lab.Sight) bool { return s.Reason == "RuntimeFrozen" }
		named := q.w.Await(began, namedWithin, "RuntimeFrozen", frozen)
		q.do("date --set '" + step + "'")
		stepped := time.Now()
		q.w.Await(stepped, namedWithin, "two more seconds of RuntimeFrozen", func(s lab.Sight) bool {
			return frozen(s) && s.At.Sub(stepped) > 2*time.Second
		})
		if out := q.do("plegd status || :"); strings.Contains(out, "1h") || strings.Contains(out, "59m") {
			t.Errorf("a fault of %s, and after date --set %q plegd status says:\n%s", time.Since(began), step, out)
		}
		thaw()
		calmSince(t, q.w, time.Now())
		least, most := stepped.Sub(named.At), time.Since(began)
		newest := q.incidentOf(t, before, "RuntimeFrozen")
		if d := time.Duration(newest.Duration * float64(time.Second)); d < least || d > most {
			t.Errorf("after %q the incident lasted %s by its own account, want %s to %s", step, d, least, most)
		}
	}
}

const stopContainerd = "kill -STOP $(systemctl show --value --property=MainPID " + containerd + ")"

// TestReboot reboots the machine within an incident.
func TestReboot(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	id := b.openIncident()
	_, _ = b.try("systemctl reboot")
	select {
	case <-b.master.done: // the connection ends with the machine's sshd
	case <-time.After(bootLimit):
		t.Fatal("the machine does not shut down")
	}
	b.hangUp()
	if err := b.connect(); err != nil {
		t.Fatalf("after the reboot: %v\n%s", err, lab.Tail(b.path("console"), serialTail))
	}
	b.afterBoot(id)
}

// TestPowerCut cuts the power within an incident that has been stored, and then at the
// very beginning of one, when its file is being written.
func TestPowerCut(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	id := b.openIncident()
	b.powerOff()
	b.mustBoot(t)
	b.afterBoot(id)

	began := time.Now()
	w := b.watch(t)
	b.do(stopContainerd)
	w.Await(began, namedWithin, "the fault is seen", func(s lab.Sight) bool { return s.State != "healthy" })
	var stored []string
	for _, i := range b.incidents(t) {
		if i.Stored {
			stored = append(stored, i.ID)
		}
	}
	b.powerOff()
	b.mustBoot(t)
	b.afterBoot(stored...)
}

// openIncident stops containerd, waits until that is an incident that is stored, and
// returns its id.
func (b *bench) openIncident() (id string) {
	b.t.Helper()
	before := b.incidents(b.t)
	b.do(stopContainerd)
	lab.Eventually(b.t, namedWithin, "the fault is an incident", func() error {
		all := b.newIncidents(b.t, before)
		if len(all) == 0 || all[0].Outcome != incident.Open || all[0].Reason != "RuntimeFrozen" || !all[0].Stored {
			return fmt.Errorf("the new ones are %+v", all)
		}
		id = all[0].ID
		return nil
	})
	return id
}

// afterBoot waits until plegd is healthy after a boot, and checks that these incidents are
// there, closed, and that every file is whole.
func (b *bench) afterBoot(ids ...string) {
	b.t.Helper()
	b.awaitHealthy(b.t)
	all := b.incidents(b.t)
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(i incident.Summary) bool { return i.ID == id }) {
			b.t.Fatalf("incident %s is lost: %+v", id, all)
		}
	}
	for _, i := range all {
		// One of the boot itself, before containerd listened, would still be open only for
		// a few seconds.
		if i.Outcome == incident.Open {
			b.t.Errorf("incident %s is still open, and all is well", i.ID)
		}
	}
	for file := range strings.FieldsSeq(b.do("ls /var/lib/plegd/incidents")) {
		if out := b.do("cat /var/lib/plegd/incidents/" + file); !json.Valid([]byte(out)) {
			b.t.Error(errors.New(file + " is no whole document: " + out[:min(len(out), 200)]))
		}
	}
}
