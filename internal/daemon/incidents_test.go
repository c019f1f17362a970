package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/must"
)

// remember gives a daemon a state directory, and so incidents.
func remember(t *testing.T) func(*Config) {
	dir := t.TempDir()
	return func(c *Config) { c.StateDir = dir }
}

// recorded returns the only incident in a state directory.
func recorded(t *testing.T, dir string) *incident.Incident {
	t.Helper()
	list, bad, err := incident.Read(incident.Dir(dir))
	if err != nil || len(bad) > 0 || len(list) != 1 {
		t.Fatalf("%d incidents, unreadable: %v, %v", len(list), bad, err)
	}
	one, err := incident.ReadOne(incident.Dir(dir), list[0].ID)
	must.Do(t, err)
	return one
}

// TestIncidentIsRecorded: a hang from its onset over NotReady to its end, with the
// facts to judge it again.
func TestIncidentIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), remember(t))
		w.at(130 * time.Second)
		w.fail("socket=freeze")
		w.at(180 * time.Second)
		w.fail("")
		w.at(185 * time.Second)
		if list := w.d.Incidents(); len(list) != 1 || list[0].Outcome != incident.Recovered || !list[0].Stored {
			t.Fatalf("incidents: %+v", list)
		}
		one := recorded(t, w.d.cfg.StateDir)
		if one.Reason != health.RuntimeUnresponsive || one.State != facts.StateUnhealthy || one.KubeletMessage != down {
			t.Errorf("%+v, %q", one.Summary, one.KubeletMessage)
		}
		if onset := one.Opened.Sub(w.t0); onset < 132*time.Second || onset > 134*time.Second {
			t.Errorf("opened at %s", onset)
		}
		if got := one.Timeline[0].Snapshot.Facts; got.Relist.InFlight == nil || len(got.Calls) < 4 {
			t.Errorf("the onset's facts show no call under way: %+v", got.Relist)
		}
		different, judged := incident.Replay(one)
		if len(different) > 0 || judged != len(one.Timeline) || judged < 3 {
			t.Errorf("judged again, %d of %d moments differ: %+v", len(different), judged, different)
		}
	})
}
