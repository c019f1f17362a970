package facts

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// In the JSON of this package durations are seconds and times RFC 3339 in UTC: encoding/json can write a
// time.Duration as nanoseconds only. Snapshot has the methods that make encoding/json do the same.

// maxText is the most bytes of one string in a snapshot's JSON: a runtime may put anything into its messages.
const maxText = 2 << 10

// Marshal returns the JSON of v, which holds durations and times of this process.
func Marshal(v any) ([]byte, error) {
	return json.Marshal(v, common, json.WithMarshalers(json.MarshalToFunc(writeSeconds)))
}

// Unmarshal reads what Marshal has written.
func Unmarshal(b []byte, v any) error {
	return json.Unmarshal(b, v, common, json.WithUnmarshalers(json.UnmarshalFromFunc(readSeconds)))
}

var common = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.EscapeForHTML(true), json.Deterministic(true))

// MarshalJSON writes the times of s as the wall clock of At has them, and bounds its texts.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot // without this method
	taken := s.At
	return json.Marshal((*plain)(&s), common, json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(writeSeconds),
		json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error {
			return e.WriteToken(jsontext.String(Wall(taken, t).Format(time.RFC3339Nano)))
		}),
		json.MarshalToFunc(func(e *jsontext.Encoder, text string) error {
			if len(text) > maxText {
				text = strings.ToValidUTF8(text[:maxText], "") + "…"
			}
			return e.WriteToken(jsontext.String(text))
		}),
		json.MarshalToFunc(func(e *jsontext.Encoder, f float64) error {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				f = 0
			}
			return e.WriteToken(jsontext.Float(f))
		}),
	)))
}

// UnmarshalJSON reads what MarshalJSON has written.
func (s *Snapshot) UnmarshalJSON(b []byte) error {
	type plain Snapshot
	return Unmarshal(b, (*plain)(s))
}

func writeSeconds(e *jsontext.Encoder, d time.Duration) error {
	return e.WriteValue(strconv.AppendFloat(nil, d.Seconds(), 'f', -1, 64))
}

func readSeconds(d *jsontext.Decoder, duration *time.Duration) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return err
	}
	*duration = time.Duration(math.Round(seconds * float64(time.Second)))
	return nil
}
