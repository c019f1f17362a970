package fakeruntime

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	// Of an answer.
	kindOversize kind = "oversize"
	kindEmpty    kind = "empty"
	kindGarbage  kind = "garbage" // also on the socket
	kindNotReady kind = "notready"
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

var (
	callKinds = []kind{
		kindOff, kindError, kindDelay, kindHang, kindPanic, kindOversize, kindEmpty, kindGarbage,
		kindNotReady,
	}
	socketKinds = []kind{
		kindOff, kindNoAccept, kindClose, kindNoSettings, kindSettingsOnly, kindSpeakSecond, kindDrip,
		kindGarbage, kindHTTP1, kindFreeze,
	}
)

func (k kind) ofCalls() bool  { return slices.Contains(callKinds, k) }
func (k kind) ofSocket() bool { return slices.Contains(socketKinds, k) }

// lasting reports whether a socket's fault is a state that no connection uses up.
func (k kind) lasting() bool { return k == kindNoAccept || k == kindFreeze || k == kindDrip }

// Names in place of a call's.
const (
	// AnyRPC matches every call that has no failpoint of its own.
	AnyRPC = "*"
	// Socket has the faults below gRPC.
	Socket = "socket"
)

// Term is one step of a failpoint: its effect, and how often it applies before the next.
type Term struct {
	kind  kind
	count int // 0: for ever
	code  codes.Code
	text  string // an error's message, notready's condition
	pause time.Duration
	size  int
}

// Times returns the term with a count of calls or connections; then the next term
// applies. It panics if n is not positive.
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

// Delay answers after a time, also if the failpoint changes.
func Delay(d time.Duration) Term { return Term{kind: kindDelay, pause: d} }

// Hang does not answer until the call ends, the failpoint changes, or the server stops.
func Hang() Term { return Term{kind: kindHang} }

// Panic cuts every connection, as a panic kills a real runtime; the listener continues.
func Panic() Term { return Term{kind: kindPanic} }

// Oversize pads the answer, or each message of a stream, to this many bytes.
func Oversize(bytes int) Term { return Term{kind: kindOversize, size: bytes} }

// Empty answers with an empty message; a stream ends at once with EOF.
func Empty() Term { return Term{kind: kindEmpty} }

// Garbage answers with bytes that are no valid message, or no HTTP/2.
func Garbage() Term { return Term{kind: kindGarbage} }

// NotReady makes a condition of Status false.
func NotReady(condition string) Term { return Term{kind: kindNotReady, text: condition} }

// NoAccept stops accepting: connects wait in the queue. Open connections continue.
func NoAccept() Term { return Term{kind: kindNoAccept} }

// Close accepts and closes at once.
func Close() Term { return Term{kind: kindClose} }

// NoSettings accepts and reads and never sends anything.
func NoSettings() Term { return Term{kind: kindNoSettings} }

// SettingsOnly sends HTTP/2 SETTINGS and nothing after.
func SettingsOnly() Term { return Term{kind: kindSettingsOnly} }

// SpeakSecond puts cmux in front of the gRPC server, as CRI-O does: see mux. It is no fault.
func SpeakSecond() Term { return Term{kind: kindSpeakSecond} }

// Drip sends so many bytes at a time, with pauses.
func Drip(bytes int, interval time.Duration) Term {
	return Term{kind: kindDrip, size: bytes, pause: interval}
}

// HTTP1 answers as an HTTP/1.1 server does.
func HTTP1() Term { return Term{kind: kindHTTP1} }

// Freeze accepts, reads and writes nothing, as a process under SIGSTOP.
func Freeze() Term { return Term{kind: kindFreeze} }

// String returns the term as ParseFailpoints reads it.
func (t Term) String() string {
	argument := ""
	switch t.kind {
	case kindError:
		argument = t.code.String()
		if t.text != "" {
			argument += ": " + t.text
		}
	case kindDelay:
		argument = t.pause.String()
	case kindOversize:
		argument = strconv.Itoa(t.size)
	case kindNotReady:
		argument = t.text
	case kindDrip:
		argument = strconv.Itoa(t.size) + "," + t.pause.String()
	}
	s := string(t.kind)
	if argument != "" {
		s += "(" + argument + ")"
	}
	if t.count > 0 {
		s = strconv.Itoa(t.count) + "*" + s
	}
	return s
}

// Failpoints are the terms by name: of a call (ListContainers), of every other call
// (AnyRPC) and of the connections (Socket).
type Failpoints map[string][]Term

// String returns the failpoints as ParseFailpoints reads them, sorted by name.
func (f Failpoints) String() string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(f)) {
		terms := make([]string, len(f[rpc]))
		for i, t := range f[rpc] {
			terms[i] = t.String()
		}
		parts = append(parts, rpc+"="+strings.Join(terms, "->"))
	}
	return strings.Join(parts, ";")
}
