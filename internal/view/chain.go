package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// chain is the chain of waiting, from the kubelet to the culprit. The call that hangs alone
// is in the evidence.
func chain(c *facts.WaitChain) Section {
	out := Section{ID: "chain", Title: "Wait chain", Kind: Chain, Column: 2}
	if c.Culprit == nil && c.ChainEnd == "" {
		return out
	}
	if len(c.Chain) > 0 && c.Chain[0].Kind == facts.KindCall {
		out.Rows = []Row{{Label: "kubelet", Text: "(its relist makes the same call)"}}
	}
	for i := range c.Chain {
		l := &c.Chain[i]
		row := Row{Label: Printable(string(l.Kind)), Text: link(l)}
		if c.ChainEnd == "" && i == len(c.Chain)-1 {
			row.Mark = MarkCulprit
		}
		out.Rows = append(out.Rows, row)
	}
	if c.ChainEnd != "" {
		out.Footnote = "No further: " + Printable(c.ChainEnd) + "."
	}
	return out
}

// shownID is how many characters of an ID are shown, as by crictl, which accepts them.
const shownID = 13

// link names a link, without its kind, and its state.
func link(l *facts.Link) string {
	who := Printable(l.Name)
	if l.PID != 0 {
		who += fmt.Sprintf(" (pid %d)", l.PID)
	}
	if l.Pod != "" {
		who += " of pod " + Printable(l.Pod)
	}
	if l.RuntimeID != "" && l.RuntimeID != l.Name {
		who += " id " + Printable(l.RuntimeID[:min(len(l.RuntimeID), shownID)])
	}
	does := Printable(string(l.State))
	if l.Evidence != "" {
		does = Printable(l.Evidence)
	}
	return strings.TrimPrefix(strings.TrimSpace(who)+": "+does, ": ")
}

// culpritTerm names the last link of the chain, its pod and the symptom. That link is the
// culprit unless the chain ends before it.
func culpritTerm(c *facts.WaitChain, symptom string) Row {
	out := Row{Label: "Culprit", Mark: MarkCulprit}
	if c.ChainEnd != "" {
		out = Row{Label: "Last link"}
	}
	if c.Culprit == nil {
		return out
	}
	l := *c.Culprit
	isThePods := l.Kind != facts.KindProcess && l.Kind != facts.KindRuntime
	for _, earlier := range slices.Backward(c.Chain) {
		named := earlier.Kind == facts.KindContainer || earlier.Kind == facts.KindPod
		if l.Pod == "" && isThePods && named && earlier.Name != l.Name {
			l.Pod = earlier.Name
		}
	}
	out.Text = strings.TrimSpace(Printable(string(l.Kind)) + " " + link(&l))
	if symptom != "" {
		out.Text += "; seen as " + Printable(symptom)
	}
	return out
}

// Culprit names the last link of the chain and its state, shortly, and does not escape them;
// the name of a path is left out where names is false.
func Culprit(l *facts.Link, names bool) string {
	out := string(l.Kind)
	switch {
	case l.PID != 0:
		out += fmt.Sprintf(" pid %d", l.PID)
	case l.Name != "" && names:
		out += " " + l.Name
	}
	return out + " " + string(l.State)
}

// BesideChain returns the evidence that the links of the chain do not show.
func BesideChain(c *facts.WaitChain, evidence []string) []string {
	if c.Culprit == nil && c.ChainEnd == "" {
		return evidence
	}
	return slices.DeleteFunc(slices.Clone(evidence), func(e string) bool {
		return strings.HasPrefix(e, "no further: ") || slices.ContainsFunc(c.Chain, func(l facts.Link) bool {
			return l.Evidence != "" && strings.HasSuffix(e, " "+l.Evidence)
		})
	})
}
