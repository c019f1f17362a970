package evidence_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// TestDialStuck: a runtime that takes connections and answers none gets one a
// minute at most, since each stays in its queue; the one that waits tells when
// it is back.
func TestDialStuck(t *testing.T) {
	for name, fault := range map[string]fakeruntime.Term{"noaccept": fakeruntime.NoAccept(), "nosettings": fakeruntime.NoSettings(), "freeze": fakeruntime.Freeze()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				rt.Set(fakeruntime.Socket, fault)
				begin := time.Now()
				p := probe(t, evidence.DialOptions{Dial: rt.Dialer()})
				time.Sleep(timeout)
				synctest.Wait()
				// It is said after the timeout, not after a minute.
				if last := p.Last(); last.Stage != health.StageSettings || last.Cause != health.CauseTimeout || !last.At.Equal(begin) || last.Failures != 1 {
					t.Errorf("after %v: %+v", timeout, last)
				}
				for minutes := 1; minutes <= 60; minutes++ {
					time.Sleep(time.Until(begin.Add(time.Duration(minutes) * time.Minute)))
					synctest.Wait()
					if n := rt.Dials(); n > minutes {
						t.Fatalf("%d connections in %d minutes", n, minutes)
					}
				}
				if n := rt.Dials(); n < 55 {
					t.Errorf("%d connections in an hour: it has given up", n)
				}
				last, told := p.Last(), p.told()
				if !last.FailedSince.Equal(begin) || last.Failures != len(told) || last.Failures != rt.Dials() || last.OK {
					t.Errorf("%d connections, %d results: %+v", rt.Dials(), len(told), last)
				}
				if name == "nosettings" {
					return // the fake runtime hangs up on those that wait when it wakes
				}

				// In the middle of the wait it wakes.
				time.Sleep(20 * time.Second)
				woken := time.Now()
				rt.Set(fakeruntime.Socket)
				synctest.Wait()
				if last := p.Last(); !last.OK || last.Failures != 0 || time.Since(woken) != 0 {
					t.Errorf("when it woke: %+v", last)
				}
				if n := rt.Dials(); n > 61 {
					t.Errorf("%d connections", n)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n := rt.Dials(); len(p.told()) < len(told)+5 || !p.Last().OK || n > 66 {
					t.Errorf("no probe every %v: %d results, %d connections", period, len(p.told())-len(told), n)
				}
			})
		})
	}
}

// TestDialKick: a probe at once, however many ask for it, and one at a time.
func TestDialKick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		p := probe(t, evidence.DialOptions{Dial: rt.Dialer(), Period: time.Hour})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(p.told()); n != 1 {
			t.Fatalf("%d probes, want 1", n)
		}
		rt.Set("Version", fakeruntime.Delay(500*time.Millisecond))
		kicked := time.Now()
		for range 10 {
			p.ProbeNow()
		}
		synctest.Wait()
		for range 10 { // while the probe is under way
			p.ProbeNow()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		told := p.told()
		if len(told) != 3 || !told[1].At.Equal(kicked) || !told[2].At.Equal(kicked.Add(500*time.Millisecond)) {
			t.Errorf("%d results: %+v; want one at once and one after it", len(told)-1, told[1:])
		}
		if n := rt.Calls("Version").MaxInFlight; n != 1 {
			t.Errorf("%d probes at once", n)
		}
		// The period begins again with each.
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(p.told()); n != 4 {
			t.Errorf("%d probes an hour later, want 4", n)
		}
	})
}

// TestDialStopsPromptly: Run ends at once in each wait, and a probe that it cut short is not
// reported. The bubble would not end with a goroutine left.
func TestDialStopsPromptly(t *testing.T) {
	for name, fault := range map[string]func(*fakeruntime.Runtime){
		"between two probes": func(*fakeruntime.Runtime) {},
		"connect fails":      (*fakeruntime.Runtime).Kill,
		"not accepted":       socket(fakeruntime.NoAccept()),
		"no settings":        socket(fakeruntime.NoSettings()),
		"frozen":             socket(fakeruntime.Freeze()),
		"settings only":      socket(fakeruntime.SettingsOnly()),
		"no answer":          version(fakeruntime.Hang()),
	} {
		for _, after := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 30 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				fault(rt)
				p := probe(t, evidence.DialOptions{Dial: rt.Dialer()})
				time.Sleep(after)
				synctest.Wait()
				last, told, stopped := p.Last(), len(p.told()), time.Now()
				p.stop()
				if d := time.Since(stopped); d != 0 || p.Last() != last || len(p.told()) != told {
					t.Errorf("%s, %s: Run continued for %v, last result %+v", name, after, d, p.Last())
				}
			})
		}
	}
}
