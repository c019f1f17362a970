package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestStops: a sandbox that has ended for a minute is named while its network is there for the runtime, and not one whose
// network is gone, is the node's, or is not known.
func TestStops(t *testing.T) {
	const network = "/run/netns/cni-1"
	for name, tt := range map[string]struct {
		state    cri.State
		reported string
		err      error // of the first call
		after    time.Duration
		never    bool // it was never ready
		hangs    bool
		want     bool
	}{
		"its network is there":            {state: cri.StateExited, reported: network, after: stopLimit, want: true},
		"by another path":                 {state: cri.StateExited, reported: "/var" + network, after: stopLimit, want: true},
		"it ended a moment ago":           {state: cri.StateExited, reported: network, after: stopLimit - time.Second},
		"it runs":                         {state: cri.StateRunning, reported: network, after: stopLimit},
		"it has been stopped":             {state: cri.StateExited, reported: "/run/netns/cni-2", after: stopLimit},
		"it is on the node's network":     {state: cri.StateExited, after: stopLimit},
		"its network is in another place": {state: cri.StateExited, reported: "/proc/20/ns/net", after: stopLimit},
		"the runtime answers later":       {state: cri.StateExited, reported: network, err: errors.New("busy"), after: stopLimit, want: true},
		"it is not yet made":              {state: cri.StateExited, reported: network, after: stopLimit, never: true},
		"the runtime does not answer now": {state: cri.StateExited, reported: network, after: stopLimit, hangs: true},
	} {
		root := node(t, nil)
		evidencetest.WriteTree(t, root, map[string]string{"10/root" + network: "", "10/root/proc/20/ns/net": ""})
		now := time.Now()
		options := optionsOf(t, root, &now)
		entry := &cri.Entry{ID: "0a1b", Sandbox: true, SandboxID: "0a1b", State: tt.state, PodNamespace: "shop", PodName: "cart-0"}
		options.Listed = func() map[string]*cri.Entry { return map[string]*cri.Entry{entry.ID: entry} }
		if tt.hangs {
			options.ListedAt = func() time.Time { return now.Add(-time.Minute) }
		}
		failure := tt.err
		options.NetworkOf = func(context.Context, *cri.Entry) (string, error) {
			err := failure
			failure = nil
			return tt.reported, err
		}
		l := New(options)
		if !tt.never {
			entry.State = cri.StateRunning
			l.Pass(t.Context())
		}
		entry.State = tt.state
		l.Pass(t.Context())
		now = now.Add(tt.after)
		found := l.Pass(t.Context()).Findings
		if tt.err != nil {
			check.Equal(t, len(found), 0, "%s: findings without an answer", name)
			found = l.Pass(t.Context()).Findings
		}
		named := len(found) == 1 && found[0].Reason == podStopsFailing && found[0].Chain.Culprit().Name == "shop/cart-0"
		if named != tt.want || !tt.want && len(found) > 0 {
			t.Errorf("%s: %+v, want %t", name, found, tt.want)
		}
	}
}
