package view

import (
	"fmt"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// Link says what a link of a chain of waiting is, and what it does instead of
// answering.
func Link(l health.Link) string {
	out := string(l.Kind)
	if l.Name != "" {
		out += " " + Say(l.Name)
	}
	if l.PID != 0 {
		out += fmt.Sprintf(" (pid %d)", l.PID)
	}
	if l.Evidence != "" {
		return out + ": " + Say(l.Evidence)
	}
	return out + ": " + strings.ReplaceAll(string(l.State), "_", " ")
}
