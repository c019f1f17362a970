package health

import "time"

// Events is the runtime's event stream and how far it can be trusted. Counts
// are since plegd started.
type Events struct {
	// Mode is hint or evented.
	Mode string `json:"mode"`
	// Phase is waiting, streaming, broken, refused, unsupported or
	// ends_at_once; Since is when it began, Detail says more.
	Phase  string    `json:"phase"`
	Since  time.Time `json:"since,omitzero"`
	Detail string    `json:"detail,omitzero"`
	// InUse is true while relists are far apart because events report what
	// changes: the period and the threshold of Config are then the evented ones.
	// FellBack is true from the fallback to the generic loop until a stream
	// holds again.
	InUse    bool `json:"in_use,omitzero"`
	FellBack bool `json:"fell_back,omitzero"`
	// Failures counts the stream's failures since it came into use (hint: since
	// it last held), LastFailed and LastErr are those of the last.
	Failures   int        `json:"failures,omitzero"`
	LastFailed time.Time  `json:"last_failed,omitzero"`
	LastErr    *CallError `json:"last_error,omitzero"`
	LastEvent  time.Time  `json:"last_event,omitzero"`

	// Opened counts the streams, Errors those that failed, Lapses the times that
	// none was open for a while and none had failed.
	Opened uint64 `json:"opened"`
	Errors uint64 `json:"errors,omitzero"`
	Lapses uint64 `json:"lapses,omitzero"`
	// Received counts the events by runtime.v1's type, each once; Duplicates the
	// copies; Backlog those older than the subscription.
	Received   map[string]uint64 `json:"received,omitzero"`
	Duplicates uint64            `json:"duplicates,omitzero"`
	Backlog    uint64            `json:"backlog,omitzero"`
	// Missed counts the changes that a relist found and no event reported;
	// MissedSince is when the present run of them began, LastMissed when its last
	// was counted: those that a gap of the stream explains are in no run.
	Missed      uint64    `json:"missed,omitzero"`
	MissedSince time.Time `json:"missed_since,omitzero"`
	LastMissed  time.Time `json:"last_missed,omitzero"`
	// OutOfOrder, NoStatus, Known, Gone and Dropped count events: made before one
	// of their pod that came earlier, without the sandbox's status, older than
	// the last lists, of a pod that is gone, and come too fast to be taken.
	OutOfOrder uint64 `json:"out_of_order,omitzero"`
	NoStatus   uint64 `json:"no_status,omitzero"`
	Known      uint64 `json:"known,omitzero"`
	Gone       uint64 `json:"gone,omitzero"`
	Dropped    uint64 `json:"dropped,omitzero"`

	// Waiting pod lifecycle events have yet to be read, Capacity fit.
	Waiting  int `json:"waiting,omitzero"`
	Capacity int `json:"capacity,omitzero"`
}

// Used reports whether events are put to the use that --events asks for.
func (e *Events) Used() bool { return e.InUse || e.Mode == "hint" && e.Phase == "streaming" }

// full reports whether the channel of a PLEG that relies on events is full, which
// the kubelet's health check calls unhealthy.
func (e *Events) full() bool {
	return e != nil && e.InUse && e.Capacity > 0 && e.Waiting >= e.Capacity
}
