package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// callSources are the sources that show why calls are late: where one of them lacks a part, the
// cause of the reason may be there.
var callSources = []string{"process", "cgroup", "children", "storage", "queue", "listener", "node", "dockerd", "dockerd_containerd", "ledger"}

// unreadText states which parts of the evidence that a reason reads could not be read, and why;
// "" where all could. What a source has failed with may hold names of the node: the status has it.
func (s *signals) unreadText(r *Reason) string {
	var out []string
	sources := s.f.Evidence.Sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if !r.reads(name, s.hop != nil) {
			continue
		}
		source := sources[name]
		if !source.Up && !source.Kept {
			out = append(out, name+" (no sample)")
		}
		for _, part := range slices.Sorted(maps.Keys(source.Unread)) {
			out = append(out, fmt.Sprintf("%s: %s (%s)", name, part, source.Unread[part]))
		}
	}
	if out == nil {
		return ""
	}
	return "could not be read: " + strings.Join(out, ", ")
}

// reads reports whether the reason rests on a source. Those of a hop behind the runtime have the
// name of dockerd.
func (r *Reason) reads(source string, isHop bool) bool {
	if isHop {
		return r.Reads != nil && strings.HasPrefix(source, "dockerd")
	}
	return slices.Contains(r.Reads, source)
}
