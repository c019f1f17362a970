package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// kubeletText describes the node's kubelet itself.
func kubeletText(s *facts.Snapshot) string {
	p := s.Facts.Evidence.KubeletProcess
	k := s.Facts.Evidence.Kubelet
	var parts []string
	switch {
	case p != nil:
		parts = append(parts, fmt.Sprintf("pid %d", p.PID))
	case k == nil || !k.Seen:
		parts = append(parts, "none is seen on this node")
	}
	if !s.Started.IsZero() {
		parts = append(parts, "started "+age(s, s.Started))
	}
	parts = append(parts, kubeletReports(s, k)...)
	if api := s.Facts.Evidence.KubeletAPI; api != nil && api.Problem != "" {
		parts = append(parts, "its API server is not known: "+Printable(api.Problem))
	}
	if k != nil && untested(k.Version) {
		parts = append(parts, "plegd has not been tested with "+Printable(k.Version))
	}
	if p != nil {
		parts = append(parts, kubeletSettings(s, p, k)...)
	}
	return strings.Join(parts, "; ")
}

// kubeletReports is what the kubelet reports about itself.
func kubeletReports(s *facts.Snapshot, k *facts.Kubelet) (parts []string) {
	if k == nil {
		return nil
	}
	answers := "its healthz answers ok"
	if !k.OK {
		answers = "its healthz fails"
		if !k.FailedSince.IsZero() {
			answers += " " + lastingFor(s, k.FailedSince)
		}
	}
	if k.Detail != "" {
		answers += ": " + shorten(Printable(k.Detail), 160)
	}
	parts = append(parts, answers)
	if !k.LastSeen.IsZero() {
		parts = append(parts, "its own PLEG was last seen "+age(s, k.LastSeen))
	}
	return parts
}

// kubeletSettings are the settings of the kubelet that matter, and those that could not be read.
func kubeletSettings(s *facts.Snapshot, p *facts.KubeletProcess, k *facts.Kubelet) (parts []string) {
	if p.EventedPLEG && (s.Facts.Events == nil || s.Facts.Events.Mode != "evented") {
		relistsLess, sure := k.RelistsLess()
		if relistsLess || !sure {
			parts = append(parts, "it uses EventedPLEG: one before 1.37 needs --events=evented")
		}
	}
	if s.Facts.Config.From != nil {
		parts = append(parts, settings(&s.Facts.Config))
	}
	if p.Problem != "" {
		parts = append(parts, "settings not read: "+Printable(p.Problem))
	}
	return parts
}

// untested reports whether the model has not been tried on a version of the kubelet: 1.33 to
// 1.37 have been.
func untested(version string) bool {
	v, known := facts.ParseVersion(version)
	return known && (v[0] != 1 || v[1] < 33 || v[1] > 37)
}

// settings are the kubelet's periods that the prediction depends on, with where each was made.
func settings(c *facts.Config) string {
	source := func(setting string) string {
		return " (" + Printable(cmp.Or(c.From[setting], "default")) + ")"
	}
	period, _ := c.StatusPeriod()
	return "updates its status every " + facts.Seconds(period) + source(facts.SettingNodeStatusPeriod) +
		", waits for a call up to " + facts.Seconds(c.RPCTimeout) + source(facts.SettingRequestTimeout)
}
