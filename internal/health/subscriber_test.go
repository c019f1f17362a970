package health

import (
	"testing"
	"time"
)

// TestSubscriberStopped: a client that is stopped cannot read, so that less time
// is enough to say so than of one that is only slow.
func TestSubscriberStopped(t *testing.T) {
	for _, c := range []struct {
		state string
		since time.Duration
		want  string
	}{
		{"T", time.Second, ""},
		{"T", 2 * time.Second, EventSubscriberStuck},
		{"S", 7 * time.Second, ""},
		{"S", 8 * time.Second, EventSubscriberStuck},
		{"", 8 * time.Second, EventSubscriberStuck},
	} {
		f := healthyFacts(t0)
		f.Runtime = Runtime{Name: "containerd", Version: "v2.4.2"}
		f.Evidence.Connections = &Connections{At: t0, Stuck: []StuckClient{{State: c.state, UnsentBytes: 200_000, UnreadBytes: 67_000, Since: t0.Add(-c.since)}}}
		if v := Judge(&f, t0, nil); v.Reason != c.want {
			t.Errorf("state %q for %s: %q, want %q", c.state, c.since, v.Reason, c.want)
		}
	}
}
