package evidence_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

func always() bool { return true }

// TestDialGreets: while all is well a connection is made each period, and one in 15 s
// asks for the Version.
func TestDialGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		p := probe(t, evidence.DialOptions{Dial: rt.Dialer(), Calm: always})
		time.Sleep(time.Minute)
		synctest.Wait()
		told := p.told()
		if len(told) < 28 || len(told) != rt.Dials() {
			t.Errorf("%d probes and %d connections in a minute", len(told), rt.Dials())
		}
		for _, d := range told {
			if !d.OK {
				t.Errorf("told of %+v", d)
			}
		}
		if n := rt.Calls("Version").Started; n < 4 || n > 5 {
			t.Errorf("%d Version calls in a minute", n)
		}
		if _, open := rt.Accepted(); open != 0 {
			t.Errorf("%d connections are open between two probes", open)
		}
		time.Sleep(5 * time.Second) // the last one that asked was at 64 s
		rt.SetVersion("containerd", "9.9.9")
		p.Moved()
		synctest.Wait()
		if v := p.Version(); v == nil || v.RuntimeVersion != "9.9.9" {
			t.Errorf("%+v, and another runtime listens", v)
		}
	})
}

// TestDialGreetFailures: what a greeting meets has the same stage and cause as without
// greetings, and is gone when the fault is.
func TestDialGreetFailures(t *testing.T) {
	for _, tt := range dialFaults {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, tt.opts)
				p := probe(t, evidence.DialOptions{Dial: rt.Dialer(), Calm: always})
				time.Sleep(7 * time.Second)
				tt.fault(rt)
				begin, within := time.Now(), 2*period+2*timeout
				if tt.stage == health.StageRPC {
					within += 15 * time.Second // a greeting sees nothing of it
				}
				for p.Last().OK && time.Since(begin) < within {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
				}
				if last := p.Last(); last.OK || last.Stage != tt.stage || last.Cause != tt.cause || !strings.Contains(last.Detail, tt.detail) {
					t.Errorf("%+v, want %s and %s (%s)", last, tt.stage, tt.cause, tt.detail)
				}
				fixDial(rt, tt.fix)
				time.Sleep(max(tt.within, 50*time.Millisecond))
				synctest.Wait()
				if last := p.Last(); !last.OK {
					t.Errorf("after it was fixed: %+v", last)
				}
			})
		})
	}
}

// TestDialGreetStuck: a greeting that nobody answers is held on to, as a probe is: one
// connection a minute, which tells when the runtime is back.
func TestDialGreetStuck(t *testing.T) {
	for name, fault := range map[string]fakeruntime.Term{"noaccept": fakeruntime.NoAccept(), "freeze": fakeruntime.Freeze()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				p := probe(t, evidence.DialOptions{Dial: rt.Dialer(), Calm: always})
				time.Sleep(7 * time.Second)
				before := rt.Dials()
				rt.Set(fakeruntime.Socket, fault)
				time.Sleep(10*time.Minute + 10*time.Second)
				synctest.Wait()
				if n := rt.Dials() - before; n > 11 || n < 9 || p.Last().OK {
					t.Errorf("%d connections in 10 minutes: %+v", n, p.Last())
				}
				rt.Set(fakeruntime.Socket)
				synctest.Wait()
				if last := p.Last(); !last.OK || !last.FailedSince.IsZero() {
					t.Errorf("when it woke: %+v", last)
				}
			})
		})
	}
	t.Run("in the first minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := serve(t, fakeruntime.Options{})
			p := probe(t, evidence.DialOptions{Dial: rt.Dialer(), Calm: always})
			time.Sleep(7 * time.Second)
			rt.Set(fakeruntime.Socket, fakeruntime.NoAccept())
			time.Sleep(20 * time.Second)
			if p.Last().OK {
				t.Fatal("a runtime that accepts nobody is well")
			}
			rt.Set(fakeruntime.Socket)
			synctest.Wait()
			if last := p.Last(); !last.OK || time.Since(last.At) != 0 {
				t.Errorf("when it woke, with the connection that waits being a greeting: %+v", last)
			}
		})
	})
}
