package facts

import (
	"fmt"
	"time"
)

// CallError is why a call failed.
type CallError struct {
	Operation string `json:"operation"`
	Code      string `json:"code"` // the gRPC code's name
	Message   string `json:"message"`
	// Bytes and Limit are set when a message was refused for its size, by the server or here.
	Bytes          int  `json:"bytes,omitzero"`
	Limit          int  `json:"limit,omitzero"`
	ByServer       bool `json:"by_server,omitzero"`
	NotInitialized bool `json:"not_initialized,omitzero"` // the runtime recovers its state
	Undecodable    bool `json:"undecodable,omitzero"`     // the answer is no message of runtime.v1
	TooMany        bool `json:"too_many,omitzero"`        // a list holds more than plegd reads
}

// Error returns the error as text.
func (e *CallError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Operation, e.Code, e.Message) }

// Text is the error as evidence.
func (e *CallError) Text() string {
	return fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message)
}

// TimedOut reports whether the call got no answer before its deadline; false for nil.
func (e *CallError) TimedOut() bool { return e != nil && e.Code == "DeadlineExceeded" }

// TooLarge reports whether an answer was refused for its size.
func (e *CallError) TooLarge() bool { return e.Code == "ResourceExhausted" && e.Bytes > 0 }

// Answered reports whether the runtime itself gave this error: it does answer; false for nil.
func (e *CallError) Answered() bool {
	switch {
	case e == nil:
		return false
	case e.Code == "Unavailable":
		return e.NotInitialized // containerd 2.x
	}
	return e.Code != "DeadlineExceeded" && e.Code != "Canceled"
}

// Call is the recent history of one operation on the held connection.
type Call struct {
	LastOK         time.Time     `json:"last_ok,omitzero"` // end of the last successful call
	LastOKDuration time.Duration `json:"last_ok_duration_seconds,omitzero"`
	LastFailed     time.Time     `json:"last_failed,omitzero"` // end of the last failed call
	LastErr        *CallError    `json:"last_error,omitzero"`
	InFlightSince  time.Time     `json:"in_flight_since,omitzero"` // start of the oldest call under way
	Bytes          int           `json:"bytes,omitzero"`           // of the last answer, or of the refused one
}

// Answered reports whether the size of an answer is known: that of an empty list is 0.
func (c *Call) Answered() bool { return !c.LastOK.IsZero() || c.Bytes > 0 }

// Cause is why a dial got no further. The list is fixed: it is a label.
type Cause string

// The causes of a failed dial.
const (
	CauseNone             Cause = ""
	CauseMissing          Cause = "missing"           // ENOENT: no such path
	CauseNotSocket        Cause = "not_a_socket"      // the path is something else
	CauseRefused          Cause = "refused"           // ECONNREFUSED: nobody listens
	CausePermissionDenied Cause = "permission_denied" // EACCES, EPERM
	CauseQueueFull        Cause = "queue_full"        // EAGAIN: the accept queue is full
	CauseTimeout          Cause = "timeout"           // nothing came in time
	CauseClosed           Cause = "closed"            // the other end hung up
	CauseProtocol         Cause = "protocol"          // the other end does not speak HTTP/2 or gRPC
	CauseUnimplemented    Cause = "unimplemented"     // it does not serve runtime.v1
	CauseNotInitialized   Cause = "not_initialized"   // it serves, and is still recovering its state
	CauseError            Cause = "error"             // anything else
)

// Dial is the held connection's last connect(2).
type Dial struct {
	At     time.Time `json:"at,omitzero"`
	Cause  Cause     `json:"cause,omitzero"`
	Detail string    `json:"detail,omitzero"` // the error in words, or the socket's mode and owner
	// Up is true while it is up; PeerPID is its other end (SO_PEERCRED): 1 for systemd, 0 in another pid namespace.
	Up      bool `json:"up,omitzero"`
	PeerPID int  `json:"peer_pid,omitzero"`
}

// Stage is how far a fresh dial got.
type Stage string

// The stages of a fresh dial, as pleg_socket_probe_duration_seconds labels them.
const (
	StageConnect  Stage = "connect"
	StageSettings Stage = "settings"
	StageRPC      Stage = "rpc"
)

// Stages lists them in their order.
func Stages() []Stage { return []Stage{StageConnect, StageSettings, StageRPC} }

// Probe is the last fresh dial: connect, HTTP/2 SETTINGS and, while all is well only now and then, one Version call.
type Probe struct {
	At time.Time `json:"at,omitzero"` // its begin
	// OK is true when it got an answer to Version, or, where it made no call, the SETTINGS.
	OK       bool          `json:"ok"`
	Stage    Stage         `json:"stage,omitzero"` // where it failed
	Cause    Cause         `json:"cause,omitzero"`
	Detail   string        `json:"detail,omitzero"`
	Connect  time.Duration `json:"connect_seconds,omitzero"` // The stages' times, 0 where not reached
	Settings time.Duration `json:"settings_seconds,omitzero"`
	RPC      time.Duration `json:"rpc_seconds,omitzero"`
	// FailedSince is the start of the first of Failures probes in a row that failed at this stage, or zero.
	FailedSince time.Time `json:"failed_since,omitzero"`
	Failures    int       `json:"failures,omitzero"`
	// ForeignAt is when the other end last spoke another protocol; zero once a probe succeeded.
	ForeignAt time.Time `json:"foreign_at,omitzero"`
}
