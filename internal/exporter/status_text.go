package exporter

import (
	"fmt"
	"io"
)

// WriteStatusText writes d for a person at a terminal.
func WriteStatusText(w io.Writer, d *StatusDocument, color bool) error {
	_, err := fmt.Fprintf(w, "%s: %s\n", d.State, d.Reason)
	return err
}
