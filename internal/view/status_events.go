package view

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// EventsDocument is the runtime's event stream. Counts are since plegd started.
type EventsDocument struct {
	// Mode is off, hint or evented. InUse tells whether events are put to that
	// use; FellBack that evented is back to relists alone, until a stream holds.
	Mode     string `json:"mode"`
	InUse    bool   `json:"in_use"`
	FellBack bool   `json:"fell_back"`
	// Stream is waiting, streaming, broken, refused, unsupported or
	// ends_at_once, empty when Mode is off; Since is when that began, Detail says
	// more.
	Stream string     `json:"stream"`
	Since  *time.Time `json:"since"`
	Detail string     `json:"detail"`
	// Failures counts the stream's failures since it came into use (hint: since
	// it last held), LastError is that of the last.
	Failures   int            `json:"failures"`
	LastFailed *time.Time     `json:"last_failed"`
	LastError  *ErrorDocument `json:"last_error"`
	LastEvent  *time.Time     `json:"last_event"`

	Opened uint64 `json:"opened"`
	Errors uint64 `json:"errors"`
	Lapses uint64 `json:"lapses"`
	// Received counts the events by runtime.v1's type, each once.
	Received map[string]uint64 `json:"received"`
	// Missed counts the changes that a relist found and no event told; LastMissed
	// is the last of them that no gap of the stream explains.
	Missed     uint64     `json:"missed"`
	LastMissed *time.Time `json:"last_missed"`
	Duplicates uint64     `json:"duplicates"`
	OutOfOrder uint64     `json:"out_of_order"`
	// Backlog counts events older than the subscription, AlreadyKnown those older
	// than the last lists, NoSandboxStatus, PodGone and Overflow the others that
	// told nothing.
	Backlog         uint64 `json:"backlog"`
	AlreadyKnown    uint64 `json:"already_known"`
	NoSandboxStatus uint64 `json:"no_sandbox_status"`
	PodGone         uint64 `json:"pod_gone"`
	Overflow        uint64 `json:"overflow"`
}

func (b builder) events(e *health.Events) EventsDocument {
	if e == nil {
		return EventsDocument{Mode: "off", Received: map[string]uint64{}}
	}
	received := e.Received
	if received == nil {
		received = map[string]uint64{}
	}
	return EventsDocument{
		Mode: e.Mode, InUse: EventsUsed(e), FellBack: e.FellBack, Stream: e.Phase, Since: timeOrNil(b.wall(e.Since)), Detail: b.redact.text(e.Detail),
		Failures: e.Failures, LastFailed: timeOrNil(b.wall(e.LastFailed)), LastError: b.callError(e.LastErr), LastEvent: timeOrNil(b.wall(e.LastEvent)),
		Opened: e.Opened, Errors: e.Errors, Lapses: e.Lapses, Received: received,
		Missed: e.Missed, LastMissed: timeOrNil(b.wall(e.LastMissed)), Duplicates: e.Duplicates, OutOfOrder: e.OutOfOrder,
		Backlog: e.Backlog, AlreadyKnown: e.Known, NoSandboxStatus: e.NoStatus, PodGone: e.Gone, Overflow: e.Dropped,
	}
}

// PhraseEvents says how the event stream is; "" where plegd listens to none.
func PhraseEvents(d *StatusDocument) string {
	e := &d.Events
	if e.Stream == "" {
		return ""
	}
	s := Say(e.Mode) + ": "
	switch e.Stream {
	case "streaming":
		s += "the stream holds"
	case "broken":
		s += fmt.Sprintf("the stream has failed %s", FormatCount(e.Failures, "time", "times"))
		if e.FellBack {
			s += ", going by relists alone"
		}
	case "refused":
		s += "left alone"
	case "unsupported", "ends_at_once":
		s += "the runtime sends none"
	default:
		s += "waiting for the stream"
	}
	if e.Detail != "" {
		s += " (" + Say(e.Detail) + ")"
	}
	var received uint64
	for _, n := range e.Received {
		received += n
	}
	if received == 0 && e.Missed == 0 {
		return s
	}
	s += fmt.Sprintf("; %d received", received)
	if e.LastEvent != nil {
		s += ", the last " + phraseAge(d, e.LastEvent)
	}
	return s + fmt.Sprintf(", %d changes missed", e.Missed)
}

// EventsUsed tells whether events are put to the use that --events asks for.
func EventsUsed(e *health.Events) bool {
	return e.InUse || e.Mode == "hint" && e.Phase == "streaming"
}
