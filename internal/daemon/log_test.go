package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestTheLogIsQuiet while all is well, says each change of verdict once, and
// does not repeat an error every second.
func TestTheLogIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		w := watchLogged(t, fakeRuntime(10, 2), nil, zap.New(core))
		w.at(60 * time.Second)
		verdicts := func() []observer.LoggedEntry { return logged.FilterMessageSnippet("verdict changed").All() }
		sources := logged.FilterMessageSnippet("evidence source ").Len()
		if n := len(verdicts()); n > 1 || logged.Len() != n+sources {
			t.Errorf("%d lines in a quiet minute: %v", logged.Len(), logged.All())
		}
		before := len(verdicts())
		w.fail("ListContainers=error(Internal: boom)")
		w.at(180 * time.Second)
		w.fail("")
		w.at(240 * time.Second)
		var said []string
		for _, e := range verdicts()[before:] {
			said = append(said, e.ContextMap()["state"].(string)+" "+e.ContextMap()["reason"].(string))
		}
		if n := logged.FilterMessageSnippet("evidence source ").Len(); n != sources {
			t.Errorf("sources that do not answer are said %d times, and %d times more later", sources, n-sources)
		}
		want := []string{"degraded " + health.Unknown, "healthy "}
		if len(said) != 2 || said[0] != want[0] || said[1] != want[1] {
			t.Errorf("two minutes of failing lists and a minute after: %q, want %q", said, want)
		}
	})
}

// TestEventsAreLogged at debug level.
func TestEventsAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		rt := fakeRuntime(1, 0)
		w := watchLogged(t, rt, nil, zap.New(core))
		w.at(1500 * time.Millisecond)
		pod := rt.AddPod(fakeruntime.PodSpec{Name: "job", Namespace: "default", Containers: []string{"main"}})
		w.at(2500 * time.Millisecond)
		rt.ExitContainer(pod.ContainerIDs[0], 42, "Error")
		w.at(3500 * time.Millisecond)
		rt.RemovePod(pod.UID)
		w.at(4500 * time.Millisecond)
		var got []string
		for _, e := range logged.FilterMessageSnippet("pod lifecycle event").All() {
			m := e.ContextMap()
			if m["pod_uid"] != pod.UID || m["sandbox"] == true {
				continue
			}
			got = append(got, fmt.Sprint(m["type"], " ", m["container"]))
		}
		want := "[ContainerStarted main ContainerDied main ContainerRemoved main]"
		check.Equal(t, fmt.Sprint(got), want, "logged")
	})
}

// TestSourcesAreLogged: a lasting error once, the recovery, and the same error when it
// comes again.
func TestSourcesAreLogged(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	d := Daemon{log: zap.New(core), judging: judging{failed: map[string]string{}}}
	for _, err := range []string{"", "boom", "boom", "", "", "boom"} {
		d.logParts(&facts.Facts{Evidence: facts.Evidence{Sources: map[string]facts.Source{"cgroup": {Up: err == "", Err: err}}}})
	}
	var got []string
	for _, e := range logged.All() {
		got = append(got, e.Message[:len("evidence source fai")])
	}
	want := []string{"evidence source fai", "evidence source rec", "evidence source fai"}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

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
