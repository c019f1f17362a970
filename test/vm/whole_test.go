//go:build e2e

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// pause is how long the machine does not run in the tests that stop it: longer
// than the kubelet's 30 s for a Status, and than most watchdogs.
const pause = time.Minute

// quiet fails the test unless plegd has been healthy all the time since a
// moment, is the same process as before and has recorded no incident.
type quiet struct {
	*bench
	w        *watch
	began    time.Time
	process  string
	recorded []incident
}

func newQuiet(t *testing.T) *quiet {
	b := &bench{t: t, machine: theMachine(t)}
	return &quiet{
		bench: b, w: b.watch(t), began: time.Now(),
		process: b.machine.property(t, "plegd", "MainPID"), recorded: b.incidents(t),
	}
}

// check waits until plegd has done relists after a moment, and looks back.
func (q *quiet) check(from time.Time) {
	q.t.Helper()
	first := q.w.await(from, wellWithin, "plegd answers", func(lab.Sight) bool { return true })
	q.w.await(from, wellWithin, "five more relists", func(s lab.Sight) bool { return s.Relist.Attempts >= first.Relist.Attempts+5 })
	q.w.awaitCalm(from, wellWithin)
	for _, s := range q.w.since(q.began) {
		if s.Reason != "" && !slices.Contains(busyHost, s.Reason) {
			q.t.Errorf("plegd was not healthy throughout: %s", history(q.w.since(q.began), q.began))
			break
		}
	}
	if now := q.machine.property(q.t, "plegd", "MainPID"); now != q.process {
		q.t.Errorf("plegd is process %s, and was %s: it has been restarted\n%s", now, q.process, q.do("journalctl -b -u plegd -n 40 --no-pager"))
	}
	for _, i := range newIncidents(q.incidents(q.t), q.recorded) {
		if !slices.Contains(busyHost, i.Reason) {
			q.t.Errorf("an incident has been recorded: %+v", i)
		}
	}
}

// TestPausedMachine stops qemu itself, as a host without CPU time for a guest
// does: the machine's clocks have gone on when it runs again.
func TestPausedMachine(t *testing.T) {
	q := newQuiet(t)
	q.signal(syscall.SIGSTOP)
	time.Sleep(pause)
	q.signal(syscall.SIGCONT)
	resumed := time.Now()
	q.check(resumed)
}

func (m *machine) signal(s syscall.Signal) { _ = syscall.Kill(m.qemu.pid, s) }

// TestClockSteps sets the machine's clock forward and back by an hour, while all
// is well and within a fault.
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
		q.do("systemctl freeze " + containerd)
		thaw := q.undo("systemctl thaw " + containerd)
		frozen := func(s lab.Sight) bool { return s.Reason == "RuntimeFrozen" }
		named := q.w.await(began, namedWithin, "RuntimeFrozen", frozen)
		q.do("date --set '" + step + "'")
		stepped := time.Now()
		q.w.await(stepped, namedWithin, "two more seconds of RuntimeFrozen", func(s lab.Sight) bool {
			return frozen(s) && s.At.Sub(stepped) > 2*time.Second
		})
		if out := q.do("plegd status || :"); strings.Contains(out, "1h") || strings.Contains(out, "59m") {
			t.Errorf("a fault of %s, and after date --set %q plegd status says:\n%s", time.Since(began), step, out)
		}
		thaw()
		q.w.awaitCalm(time.Now(), wellWithin)
		q.incidentOf(t, before, "RuntimeFrozen", "recovered")
		newest := newIncidents(q.incidents(t), before)[0]
		least, most := stepped.Sub(named.At), time.Since(began)
		if d := time.Duration(newest.Duration * float64(time.Second)); d < least || d > most {
			t.Errorf("after %q the incident lasted %s by its own account, want %s to %s", step, d, least, most)
		}
	}
}

// TestReboot reboots the machine within an incident that is old enough to count.
func TestReboot(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	id := b.openIncident("kill -STOP $(systemctl show --value --property=MainPID "+containerd+")", "RuntimeFrozen", 31*time.Second)
	_, _ = b.try("systemctl reboot")
	// The master connection ends with the machine's sshd.
	select {
	case <-b.master.done:
	case <-time.After(bootLimit):
		t.Fatal("the machine does not shut down")
	}
	b.hangUp()
	if err := b.connect(); err != nil {
		t.Fatalf("after the reboot: %v\n%s", err, lab.Tail(b.path("console"), serialTail))
	}
	b.afterBoot(id)
}

// TestPowerCut cuts the power within an incident that has been stored, and then
// twice at the very beginning of one, when its file is being written.
func TestPowerCut(t *testing.T) {
	b := &bench{t: t, machine: theMachine(t)}
	stop := "kill -STOP $(systemctl show --value --property=MainPID " + containerd + ")"
	id := b.openIncident(stop, "RuntimeFrozen", 0)
	b.powerOff()
	b.mustBoot(t)
	b.afterBoot(id)

	for i := range 2 {
		began := time.Now()
		w := b.watch(t)
		b.do(stop)
		w.await(began, namedWithin, "the fault is seen", func(s lab.Sight) bool { return s.State != "healthy" })
		known := b.knownIncidents()
		b.powerOff()
		b.mustBoot(t)
		t.Logf("cut %d, %s after the fault", i+1, time.Since(began).Round(time.Millisecond))
		b.afterBoot(known...)
	}
}

// knownIncidents are the ids of the incidents that are reported as stored.
func (b *bench) knownIncidents() []string {
	var ids []string
	for _, i := range b.incidents(b.t) {
		if i.Stored {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// openIncident makes a fault, waits until it is an incident that is stored and so
// old, and returns its id.
func (b *bench) openIncident(script, reason string, age time.Duration) (id string) {
	b.t.Helper()
	before := b.incidents(b.t)
	b.do(script)
	lab.Eventually(b.t, namedWithin+age, reason+" is an incident", func() error {
		all := newIncidents(b.incidents(b.t), before)
		if len(all) == 0 {
			return errors.New("there is no new incident")
		}
		newest := all[0]
		if newest.Outcome != "open" || newest.Reason != reason || !newest.Stored || newest.Duration < age.Seconds() {
			return fmt.Errorf("the newest is %+v", newest)
		}
		id = newest.ID
		return nil
	})
	return id
}

// afterBoot waits until plegd is healthy after a boot, and checks that these
// incidents are there, closed, and every file is whole.
func (b *bench) afterBoot(ids ...string) {
	b.t.Helper()
	b.awaitHealthy(b.t)
	all := b.incidents(b.t)
	for _, id := range ids {
		i := slices.IndexFunc(all, func(i incident) bool { return i.ID == id })
		if i < 0 {
			b.t.Fatalf("incident %s is lost: %+v", id, all)
		}
	}
	for _, i := range all {
		// One of the boot itself, before containerd listened, would still be open
		// only for a few seconds.
		if i.Outcome == "open" {
			b.t.Errorf("incident %s is still open, and all is well", i.ID)
		}
	}
	if len(ids) > 0 {
		if i := slices.IndexFunc(all, func(i incident) bool { return i.ID == ids[0] }); all[i].Outcome != "interrupted" && all[i].Outcome != "recovered" {
			b.t.Errorf("incident %s ended as %q", ids[0], all[i].Outcome)
		}
	}
	files := b.do("ls /var/lib/plegd/incidents")
	b.t.Logf("%d incidents, %d files", len(all), len(strings.Fields(files)))
	for file := range strings.FieldsSeq(files) {
		out := b.do("cat /var/lib/plegd/incidents/" + file)
		if !json.Valid([]byte(out)) {
			b.t.Errorf("%s is no whole document: %s", file, strconv.Quote(out[:min(len(out), 200)]))
		}
	}
}
