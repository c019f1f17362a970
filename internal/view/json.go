package view

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// WriteJSON writes v as indented JSON, with durations in seconds and without characters
// that a terminal interprets. It writes nothing if v cannot be encoded.
func WriteJSON(w io.Writer, v any) error {
	b, err := health.Marshal(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(plain.JSON(b), '\n'), "", "  "); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}
