package health

import (
	"fmt"
	"time"
)

// CallError is why a call failed.
type CallError struct {
	Operation string `json:"operation"`
	// Code is the gRPC code's name.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Bytes and Limit are set when a message was refused for its size;
	// ByServer is true for the server's limit.
	Bytes    int  `json:"bytes,omitzero"`
	Limit    int  `json:"limit,omitzero"`
	ByServer bool `json:"by_server,omitzero"`
	// NotInitialized is set when the runtime answered that it is still
	// recovering its state.
	NotInitialized bool `json:"not_initialized,omitzero"`
	// Undecodable is set when an answer came and is no message of runtime.v1.
	Undecodable bool `json:"undecodable,omitzero"`
	// TooMany is set when a list holds more entries, or longer names, than plegd
	// reads.
	TooMany bool `json:"too_many,omitzero"`
}

// Error returns the error as text.
func (e *CallError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Operation, e.Code, e.Message) }

// text is the error as evidence.
func (e *CallError) text() string {
	return fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message)
}

// timedOut reports whether the call got no answer before its deadline; false for nil.
func (e *CallError) timedOut() bool { return e != nil && e.Code == "DeadlineExceeded" }

// tooLarge reports whether an answer was refused for its size.
func (e *CallError) tooLarge() bool { return e.Code == "ResourceExhausted" && e.Bytes > 0 }

// answered reports whether the runtime itself gave this error: it does answer.
func (e *CallError) answered() bool {
	switch e.Code {
	case "Unavailable":
		return e.NotInitialized // containerd 2.x
	case "DeadlineExceeded", "Canceled":
		return false
	}
	return true
}

// Call is the recent history of one operation on the held connection.
type Call struct {
	// LastOK is when the last successful call ended; LastOKDuration its time.
	LastOK         time.Time     `json:"last_ok,omitzero"`
	LastOKDuration time.Duration `json:"last_ok_duration_seconds,omitzero"`
	// LastFailed is when the last failed call ended, LastErr why.
	LastFailed time.Time  `json:"last_failed,omitzero"`
	LastErr    *CallError `json:"last_error,omitzero"`
	// InFlightSince is the start of the oldest call under way.
	InFlightSince time.Time `json:"in_flight_since,omitzero"`
	// Bytes is the size of the last answer, or of the one refused for it.
	Bytes int `json:"bytes,omitzero"`
}

// Answered reports whether the size of an answer is known: of an empty list it is
// 0, and so it is before the first.
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

// Causes lists every cause of a failed dial.
func Causes() []Cause {
	return []Cause{CauseMissing, CauseNotSocket, CauseRefused, CausePermissionDenied, CauseQueueFull, CauseTimeout,
		CauseClosed, CauseProtocol, CauseUnimplemented, CauseNotInitialized, CauseError}
}

// Dial is the held connection's last connect(2).
type Dial struct {
	At    time.Time `json:"at,omitzero"`
	Cause Cause     `json:"cause,omitzero"`
	// Detail is the error in words, or the mode and owner of the socket.
	Detail string `json:"detail,omitzero"`
	// Up is true while the held connection is up, and PeerPID the process at its
	// other end by SO_PEERCRED: 1 where systemd made the socket, 0 where that
	// process is in another pid namespace.
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

// Stages lists the stages of a fresh dial in their order.
func Stages() []Stage { return []Stage{StageConnect, StageSettings, StageRPC} }

// Probe is the last fresh dial: connect, HTTP/2 SETTINGS and, while all is well only now
// and then, one Version call.
type Probe struct {
	// At is when it began; zero before the first.
	At time.Time `json:"at,omitzero"`
	// OK is true when it got an answer to Version, or, where it made no call, the SETTINGS.
	OK bool `json:"ok"`
	// Stage is where it failed, and Cause why.
	Stage  Stage  `json:"stage,omitzero"`
	Cause  Cause  `json:"cause,omitzero"`
	Detail string `json:"detail,omitzero"`
	// Connect, Settings and RPC are the stages' times, 0 where not reached.
	Connect  time.Duration `json:"connect_seconds,omitzero"`
	Settings time.Duration `json:"settings_seconds,omitzero"`
	RPC      time.Duration `json:"rpc_seconds,omitzero"`
	// FailedSince is the start of the first of the probes in a row that failed at
	// this stage, zero when the last one succeeded; Failures is their number.
	FailedSince time.Time `json:"failed_since,omitzero"`
	Failures    int       `json:"failures,omitzero"`
	// ForeignAt is when the other end last spoke another protocol; zero once a probe
	// succeeded.
	ForeignAt time.Time `json:"foreign_at,omitzero"`
}
