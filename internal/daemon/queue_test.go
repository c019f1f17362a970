package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestQueueOfAStuckRuntime: every connection to a runtime that does not accept
// stays in its queue, so it gets two a minute at most: fresh ones and plegd's held one.
func TestQueueOfAStuckRuntime(t *testing.T) {
	const minutes = 6
	for name, stuckFromTheStart := range map[string]bool{"while it is watched": false, "before plegd starts": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rt := fakeRuntime(10, 2)
				stop := func() {
					must.Do(t, rt.SetFailpoints("socket=noaccept;*=hang"))
				}
				if stuckFromTheStart {
					stop()
				}
				w := watch(t, rt, nil)
				w.at(10 * time.Second)
				if !stuckFromTheStart {
					stop()
				}
				before := rt.Dials()
				if stuckFromTheStart && before != 2 {
					t.Errorf("%d connections in the first 10 s, want the held and a fresh one", before)
				}
				s := w.at(10*time.Second + minutes*time.Minute)
				check.Equal(t, s.Verdict.State, facts.StateUnhealthy, "/%s after %d minutes", s.Verdict.Reason, minutes)
				n := rt.Dials() - before
				t.Logf("%d connections in %d minutes", n, minutes)
				if n > 2*minutes {
					t.Errorf("%d connections in %d minutes, want two a minute at most", n, minutes)
				}
			})
		})
	}
}
