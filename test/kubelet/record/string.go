package record

import (
	"fmt"
	"strings"
)

// String returns the comparison in a few lines for a test's log.
func (c *Comparison) String() string {
	var b strings.Builder
	r := c.Recording
	fmt.Fprintf(&b, "%s, kubelet %s, run %d: fault ended after %.1f s\n", r.Scenario, r.Kubelet, r.Run, r.since(r.Recovery))
	for _, p := range c.Predictions {
		fmt.Fprintf(&b, "  at +%.0f s: %s\n", p.After.Seconds(), p)
	}
	fmt.Fprintf(&b, "  rules failed: plegd %s, sync loop %s\n", Seconds(c.RulesFailed), Seconds(c.Skipped))
	fmt.Fprintf(&b, "  API: %s\n  plegd: %s\n", turnsText(c.API), turnsText(c.Plegd))
	fmt.Fprintf(&b, "  windows that held the API's NotReady: %.0f %%, widest %.1f s; message %s %s\n", 100*c.Inside, c.Widest, c.Message, c.PlegdMessage)
	if r.WantReason != "" {
		fmt.Fprintf(&b, "  %s named after %s, gone %s after the recovery\n", r.WantReason, Seconds(c.ReasonNamed), Seconds(c.ReasonGone))
	}
	return b.String()
}

// String returns a prediction as the table shows it.
func (p Prediction) String() string {
	var parts []string
	switch {
	case p.Failed:
		parts = append(parts, "rules failed")
	case p.Rules != nil:
		parts = append(parts, fmt.Sprintf("rules fail at %.0f s", *p.Rules))
	}
	switch {
	case p.NotReady:
		parts = append(parts, "is NotReady")
	case p.From != nil:
		parts = append(parts, fmt.Sprintf("NotReady at %.0f to %.0f s", *p.From, *p.To))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Seconds returns a time as the table shows it.
func Seconds(v *float64) string {
	if v == nil {
		return "never"
	}
	return fmt.Sprintf("%.1f s", *v)
}

func turnsText(turns []Turn) string {
	if len(turns) == 0 {
		return "Ready throughout"
	}
	var parts []string
	for _, t := range turns {
		parts = append(parts, fmt.Sprintf("NotReady at %.1f s, Ready again: %s", t.NotReady, Seconds(t.Ready)))
	}
	return strings.Join(parts, "; ")
}
