package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// WallTime is how the texts print a moment.
const WallTime = "2006-01-02 15:04:05 MST"

// Float prints a number of seconds as Seconds prints a duration.
func Float(seconds float64) string { return Seconds(time.Duration(seconds * float64(time.Second))) }

// Others says how many more reasons an incident had.
func Others(s *incident.Summary) string {
	n := len(s.Reasons)
	if slices.ContainsFunc(s.Reasons, func(r incident.ReasonTimes) bool { return r.ID == s.Reason }) {
		n--
	}
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" +%d", n)
}

// Outcome returns how an incident ended.
func Outcome(s *incident.Summary) string {
	out := Say(string(s.Outcome))
	if !s.Stored {
		out += ", not stored"
	}
	return out
}

// Runbook returns the meaning of a reason, and whether a restart of the runtime
// helps, on this runtime; nothing for an unknown reason.
func Runbook(runtime health.Runtime, id string) (meaning, restart string) {
	for _, r := range health.Reasons() {
		if r.ID == id {
			r = r.ForRuntime(runtime)
			return r.Meaning, r.RestartAnswer()
		}
	}
	return "", ""
}
