// Package factstest has facts for tests.
package factstest

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// Healthy returns the facts of a node on which all was well a moment before t.
func Healthy(t time.Time) facts.Facts {
	yes := &facts.Condition{Status: true}
	return facts.Facts{
		Config:   facts.Config{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, RPCTimeout: 2 * time.Minute},
		Started:  t.Add(-time.Hour),
		Endpoint: facts.Endpoint{Path: "/run/containerd/containerd.sock"},
		Relist:   facts.Relist{Attempts: 3600, LastSeen: t, Last: &facts.RelistResult{Start: t, End: t}},
		Modelled: facts.Modelled{LastSeen: t},
		Status:   facts.Status{Answered: true, LastGood: t, RuntimeReady: yes, NetworkReady: yes},
	}
}
