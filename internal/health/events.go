package health

import "time"

// Events is the state of the runtime's event stream. Counts are since plegd started.
type Events struct {
	Mode string `json:"mode"` // hint or evented
	// Phase is waiting, streaming, broken, refused, unsupported or ends_at_once since Since.
	Phase  string    `json:"phase"`
	Since  time.Time `json:"since,omitzero"`
	Detail string    `json:"detail,omitzero"`
	// InUse is true while relists are far apart because events report what changes, FellBack
	// from the fallback to the generic loop until a stream holds again.
	InUse    bool `json:"in_use,omitzero"`
	FellBack bool `json:"fell_back,omitzero"`
	// Failures counts the stream's failures since it came into use (hint: since it last held).
	Failures   int        `json:"failures,omitzero"`
	LastFailed time.Time  `json:"last_failed,omitzero"`
	LastErr    *CallError `json:"last_error,omitzero"`
	LastEvent  time.Time  `json:"last_event,omitzero"`

	Opened   uint64            `json:"opened"`            // streams
	Errors   uint64            `json:"errors,omitzero"`   // streams that failed
	Received map[string]uint64 `json:"received,omitzero"` // events by runtime.v1's type
}

// Used reports whether events are put to the use that --events asks for.
func (e *Events) Used() bool { return e.InUse || e.Mode == "hint" && e.Phase == "streaming" }
