package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

// node-problem-detector's protocol for a custom plugin: exit codes, the longest
// message, and a time that is inside its usual timeout of 5 s.
const (
	npdOK       = 0
	npdProblem  = 1
	npdUnknown  = 2
	npdMaxBytes = 80
	npdTimeout  = 3500 * time.Millisecond
)

// What -o npd calls a problem.
const (
	npdAny       = "any"       // everything that is not healthy
	npdUnhealthy = "unhealthy" // the kubelet no longer manages pods
	npdCritical  = "critical"  // a critical reason of the runtime or the node
)

// printNagios prints one line with performance data, as the Nagios plugin
// guidelines want. A critical reason is CRITICAL while the kubelet still manages
// pods, too.
func printNagios(w io.Writer, s *health.Snapshot) (int, error) {
	code := exitCode(s)
	if slices.ContainsFunc(s.Active, func(r health.Active) bool { return r.Severity == health.SeverityCritical }) {
		code = exitUnhealthy
	}
	line := "PLEGD " + [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code] + " - " + oneLine(s, true)
	if !s.LastSeen.IsZero() {
		threshold := s.Threshold.Seconds()
		line += fmt.Sprintf(" | last_seen_age=%.3fs;%g;%g;0", s.LastSeenAge.Seconds(), threshold/6, threshold)
	}
	_, err := fmt.Fprintln(w, line)
	return code, err
}

// printNPD prints at most 80 bytes, as node-problem-detector keeps of them. Half a
// number must not pass for a whole one: a line that is cut ends with three dots.
func printNPD(w io.Writer, s *health.Snapshot, problem string) (int, error) {
	line := oneLine(s, false)
	if len(line) > npdMaxBytes {
		line = strings.ToValidUTF8(line[:npdMaxBytes-len("...")], "") + "..."
	}
	_, err := fmt.Fprintln(w, line)
	return npdCode(s, problem), err
}

// npdCode is the exit code of a diagnosis for a kind of problem.
func npdCode(s *health.Snapshot, problem string) int {
	code := exitCode(s)
	found := code == exitUnhealthy
	switch problem {
	case npdAny:
		found = found || code == exitDegraded
	case npdCritical:
		found = slices.ContainsFunc(s.Active, ofRuntime)
	}
	switch {
	case found:
		return npdProblem
	case code == exitUnknown:
		return npdUnknown
	}
	return npdOK
}

// ofRuntime reports whether a reason is critical and of the runtime or the node:
// replacing the runtime for a fault of the kubelet or of plegd would be wrong.
func ofRuntime(a health.Active) bool {
	return a.Severity == health.SeverityCritical && !slices.ContainsFunc(health.Reasons(), func(r health.Reason) bool {
		return r.ID == a.ID && (r.Layer == health.LayerKubelet || r.Layer == health.LayerPlegd)
	})
}

// oneLine is the verdict, the primary reason and the time left; then, each after a
// colon, the culprit, with its name or without, and the first piece of evidence.
func oneLine(s *health.Snapshot, names bool) string {
	out := string(s.State)
	if s.Reason != "" {
		out += ": " + s.Reason
	}
	switch in, latest := s.NotReadyIn, s.NotReadyInLatest; {
	case in == nil:
	case !s.NodeReady && *in <= 0:
		out += ", NotReady"
	case latest != nil && *latest > *in:
		out += fmt.Sprintf(", NotReady in %.0f-%.0fs", in.Seconds(), latest.Seconds())
	default:
		out += fmt.Sprintf(", NotReady in %.0fs", in.Seconds())
	}
	if s.Culprit != nil {
		out += ": " + view.Culprit(s.Culprit, names)
	}
	if len(s.Active) > 0 {
		if evidence := view.BesideChain(s, s.Active[0].Evidence); len(evidence) > 0 {
			out += ": " + evidence[0]
		}
	}
	return strings.ReplaceAll(plain.Text(out), "|", " ") // | begins Nagios's performance data
}
