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

// kind is the effect of a failpoint.
type kind string

const (
	kindOff      kind = "off"
	kindError    kind = "error"
	kindDelay    kind = "delay"
	kindHang     kind = "hang"
	kindPanic    kind = "panic"
	kindOversize kind = "oversize"
	kindEmpty    kind = "empty"
	kindGarbage  kind = "garbage"
	kindNotReady kind = "notready"

	kindNoAccept     kind = "noaccept"
	kindClose        kind = "close"
	kindNoSettings   kind = "nosettings"
	kindSettingsOnly kind = "settingsonly"
	kindFreeze       kind = "freeze"
)

var (
	callKinds = []kind{
		kindOff, kindError, kindDelay, kindHang, kindPanic, kindOversize, kindEmpty, kindGarbage, kindNotReady,
	}
	socketKinds = []kind{
		kindOff, kindNoAccept, kindClose, kindNoSettings, kindSettingsOnly, kindGarbage, kindFreeze,
	}
)

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
	count int // 0: without limit
	code  codes.Code
	text  string // an error's message, notready's condition
	pause time.Duration
	size  int
}

// off lets calls pass.
var off = Term{kind: kindOff}

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

// Oversize pads the answer to this many bytes.
func Oversize(bytes int) Term { return Term{kind: kindOversize, size: bytes} }

// Empty answers with an empty message; a stream ends at once with EOF.
func Empty() Term { return Term{kind: kindEmpty} }

// Garbage answers with bytes that are no valid message, or no HTTP/2.
func Garbage() Term { return Term{kind: kindGarbage} }

// NoAccept stops accepting: connects wait in the queue. Open connections continue.
func NoAccept() Term { return Term{kind: kindNoAccept} }

// Close accepts and closes at once.
func Close() Term { return Term{kind: kindClose} }

// NoSettings accepts and reads and never sends anything.
func NoSettings() Term { return Term{kind: kindNoSettings} }

// SettingsOnly sends HTTP/2 SETTINGS and nothing after.
func SettingsOnly() Term { return Term{kind: kindSettingsOnly} }

// Freeze accepts, reads and writes nothing, as a process under SIGSTOP.
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
	case kindOversize:
		s += "(" + strconv.Itoa(t.size) + ")"
	case kindNotReady:
		s += "(" + t.text + ")"
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
	for _, name := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, name+"="+joined(f[name], "->"))
	}
	return strings.Join(parts, ";")
}

func joined[T any](list []T, separator string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, separator)
}
