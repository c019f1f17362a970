package exporter

import "github.com/plegd/plegd/internal/plain"

// printable returns s with everything that a terminal could take for a command
// written out. Names and messages come from the runtime.
func printable(s string) string { return plain.Text(s) }
