package relist

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// TestHint: a hint relists its pod between two relists, and the next relist finds
// nothing new there. A burst of hints is bounded.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript()
		rt.containers = []*cri.Entry{container("a", "ca", cri.StateRunning), container("b", "cb", cri.StateRunning)}
		l := New(rt, time.Second, newWatcher())
		run(t, l)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		drain(l)
		before := l.Snapshot().Attempts
		rt.set(func(s *script) {
			s.containers = []*cri.Entry{container("a", "ca", cri.StateExited), container("b", "cb", cri.StateExited)}
		})
		l.Hint("a")
		synctest.Wait()
		if e := drain(l); len(e) != 1 || e[0].ID != "ca" || l.Snapshot().Attempts != before {
			t.Errorf("events %+v", e)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if e := drain(l); len(e) != 1 || e[0].ID != "cb" {
			t.Errorf("the next relist: events %+v", e)
		}
		looks := len(rt.looks)
		for i := range 500 {
			l.Hint(fmt.Sprint(i))
			synctest.Wait()
		}
		if n := len(rt.looks) - looks; n == 0 || n > maxHints {
			t.Errorf("%d pods were relisted in a burst", n)
		}
	})
}

// TestRelyOnEvents: relists are 300 s apart while the loop relies on events, lists go
// on beside them for diagnosis, and a relist follows at once when that ends.
func TestRelyOnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(newScript(), time.Second, newWatcher())
		begin := time.Now()
		run(t, l)
		time.Sleep(1500 * time.Millisecond)
		l.RelyOnEvents(true)
		time.Sleep(200 * time.Second)
		synctest.Wait()
		s := l.Snapshot()
		if s.LastSeen.Sub(begin) != 1500*time.Millisecond || time.Since(s.Listed) > time.Second || s.Period != EventedPeriod {
			t.Errorf("last seen %s, listed %s ago, period %s", s.LastSeen.Sub(begin), time.Since(s.Listed), s.Period)
		}
		l.RelyOnEvents(false)
		synctest.Wait()
		if s := l.Snapshot(); time.Since(s.LastSeen) > 0 || s.Period != time.Second {
			t.Errorf("last seen %s ago, period %s", time.Since(s.LastSeen), s.Period)
		}
	})
}
