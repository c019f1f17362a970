package fakeruntime

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// kind is what a failpoint does.
type kind string

const (
	kindOff   kind = "off"
	kindError kind = "error"
	kindDelay kind = "delay"
	kindHang  kind = "hang"
	kindPanic kind = "panic"
	// What an answer can be made into.
	kindOversize kind = "oversize"
	kindEmpty    kind = "empty"
	kindGarbage  kind = "garbage" // also on the socket
	kindNotReady kind = "notready"
	// What a stream of several messages can be made into.
	kindBreakOff kind = "breakoff"
	kindRepeat   kind = "repeat"
	kindEndless  kind = "endless"
	kindFlood    kind = "flood"
	kindUnended  kind = "unended"
	// Below gRPC.
	kindNoAccept     kind = "noaccept"
	kindClose        kind = "close"
	kindNoSettings   kind = "nosettings"
	kindSettingsOnly kind = "settingsonly"
	kindSpeakSecond  kind = "speaksecond"
	kindDrip         kind = "drip"
	kindHTTP1        kind = "http1"
	kindFreeze       kind = "freeze"
)

// The names that stand in place of a call's in a failpoint.
const (
	// AnyRPC matches every call that has no failpoint of its own.
	AnyRPC = "*"
	// Socket is the pseudo-call of the faults below gRPC.
	Socket = "socket"
)

// Term is one step of a failpoint: what is to happen, and how often before the
// next step's turn comes. Make one with Off, Error, Hang and the others.
type Term struct {
	kind  kind
	count int // 0: for ever
	code  codes.Code
	text  string // an error's message, notready's condition
	pause time.Duration
	size  int
}

// Times returns the term with a count: it applies to n calls (on the socket: n
// connections), then the next term does, or none if it is the last. It panics if
// n is not positive.
func (t Term) Times(n int) Term {
	if n < 1 {
		panic(fmt.Sprintf("fakeruntime: Times(%d): want 1 or more", n))
	}
	t.count = n
	return t
}

// Off lets calls pass.
func Off() Term { return Term{kind: kindOff} }

// Error answers with a gRPC status. An empty message becomes "failpoint".
func Error(code codes.Code, message string) Term {
	return Term{kind: kindError, code: code, text: message}
}

// Delay answers after a time, whatever becomes of the failpoint meanwhile.
func Delay(d time.Duration) Term { return Term{kind: kindDelay, pause: d} }

// Hang does not answer until the call ends, the failpoint changes (the call then
// meets what stands there now), or the server stops.
func Hang() Term { return Term{kind: kindHang} }

// Panic lets the handler panic. A panic kills a real runtime (containerd and
// CRI-O recover none), so every connection is cut as by the death of the process,
// and the listener continues as if the runtime had been restarted at once.
func Panic() Term { return Term{kind: kindPanic} }

// Oversize pads the answer (of a stream: each message) to this many bytes on the
// wire, with a field that no reader knows. An answer that is larger stays as it is.
func Oversize(bytes int) Term { return Term{kind: kindOversize, size: bytes} }

// Empty answers with a message in which nothing is set; a stream ends at once
// with EOF.
func Empty() Term { return Term{kind: kindEmpty} }

// Garbage answers with bytes that are no valid message; on the socket with bytes
// that are not HTTP/2.
func Garbage() Term { return Term{kind: kindGarbage} }

// NotReady makes Status say that a condition (runtimeapi.RuntimeReady,
// runtimeapi.NetworkReady) is false. It changes no other call.
func NotReady(condition string) Term { return Term{kind: kindNotReady, text: condition} }

// BreakOff ends a stream with Unavailable after this many messages.
func BreakOff(messages int) Term { return Term{kind: kindBreakOff, size: messages} }

// Repeat sends each message of a stream twice.
func Repeat() Term { return Term{kind: kindRepeat} }

// Endless sends a stream's last message again and again until the call ends.
func Endless() Term { return Term{kind: kindEndless} }

// Flood continues after a streaming list's last message with items that are not
// there, new ones in every message, until the call ends.
func Flood() Term { return Term{kind: kindFlood} }

// Unended sends all messages of a stream and does not end it until the call ends.
func Unended() Term { return Term{kind: kindUnended} }

// NoAccept stops accepting: connects succeed and wait in the queue, as when a
// runtime is out of file descriptors. Open connections go on.
func NoAccept() Term { return Term{kind: kindNoAccept} }

// Close accepts and closes at once.
func Close() Term { return Term{kind: kindClose} }

// NoSettings accepts and reads and never says anything.
func NoSettings() Term { return Term{kind: kindNoSettings} }

// SettingsOnly sends HTTP/2 SETTINGS and nothing after.
func SettingsOnly() Term { return Term{kind: kindSettingsOnly} }

// SpeakSecond puts cmux in front of the gRPC server, with CRI-O's matchers: the
// server sends nothing until it has read the client's preface and SETTINGS,
// answers no frame but SETTINGS before the first HEADERS, serves gRPC only with
// the content type "application/grpc", and answers GET /info over HTTP/1.1. It
// is no fault.
func SpeakSecond() Term { return Term{kind: kindSpeakSecond} }

// Drip lets the server's bytes trickle: so many, then a pause.
func Drip(bytes int, interval time.Duration) Term {
	return Term{kind: kindDrip, size: bytes, pause: interval}
}

// HTTP1 answers as an HTTP/1.1 server does.
func HTTP1() Term { return Term{kind: kindHTTP1} }

// Freeze accepts nothing and reads and writes nothing on open connections
// either, as a process under SIGSTOP. Bytes that the kernel has taken arrive.
func Freeze() Term { return Term{kind: kindFreeze} }

// String returns the term as ParseFailpoints reads it.
func (t Term) String() string {
	s := string(t.kind)
	switch t.kind {
	case kindError:
		s += "(" + t.code.String()
		if t.text != "" {
			s += ": " + t.text
		}
		s += ")"
	case kindDelay:
		s += "(" + t.pause.String() + ")"
	case kindOversize, kindBreakOff:
		s += "(" + strconv.Itoa(t.size) + ")"
	case kindNotReady:
		s += "(" + t.text + ")"
	case kindDrip:
		s += "(" + strconv.Itoa(t.size) + "," + t.pause.String() + ")"
	}
	if t.count > 0 {
		s = strconv.Itoa(t.count) + "*" + s
	}
	return s
}
