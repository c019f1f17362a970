//go:build e2e

package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// explained is what /api/v1/status says of a fault and its cause.
type explained struct {
	State    string        `json:"state"`
	Reason   string        `json:"reason"`
	Symptom  string        `json:"symptom"`
	Chain    []health.Link `json:"chain"`
	ChainEnd string        `json:"chain_end"`
	Culprit  *health.Link  `json:"culprit"`
	Next     string        `json:"next"`
}

func (e explained) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s behind %s", e.Reason, e.Symptom)
	for _, l := range e.Chain {
		fmt.Fprintf(&b, "\n  %s %s (pid %d) %s: %s", l.Kind, l.Name, l.PID, l.State, l.Evidence)
	}
	return b.String() + "\n  " + e.ChainEnd + "\n  " + e.Next
}

func explain(t *testing.T, p *lab.Plegd) (e explained) {
	t.Helper()
	_, body, err := p.GetControl("/api/v1/status")
	if err == nil {
		err = json.Unmarshal([]byte(body), &e)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return e
}
