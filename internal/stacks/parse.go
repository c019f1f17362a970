// Package stacks reads the goroutine dump of a container runtime and reports which request
// waits for which lock, and which request holds it.
//
// A holder is named only where the dump shows exactly one goroutine that can hold the lock.
// The package reads a dump from a runtime that serves it, or from a file. It only reads: only Reader.Signal
// sends a signal, which a person has asked for.
package stacks

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxBytes bounds the part of a dump that is read. A busy runtime's has 425 KB.
const MaxBytes = 4 << 20

const (
	maxFrames = 256 // of one goroutine; Go prints at most 100
	maxWords  = 64  // of one frame
	maxName   = 512 // bytes of the name of a function

	maxMinutes = 1 << 20 // two years
)

var (
	// ErrNotDump is returned for text without goroutines.
	ErrNotDump = errors.New("not a goroutine dump: no line begins with \"goroutine N [state]:\"")
	// ErrCounted is returned for a profile with counts instead of goroutines.
	ErrCounted = errors.New("a goroutine profile with debug=1 has no states; take it with debug=2")
)

// Dump is a parsed dump.
type Dump struct {
	Goroutines []Goroutine
	// Truncated reports whether the dump was longer than MaxBytes.
	Truncated bool

	byID map[int]*Goroutine // made when it is first needed
}

// Goroutine is one goroutine of a dump.
type Goroutine struct {
	ID    int
	State string
	// Waited is how long it has been in its state, in whole minutes; 0 for less than one.
	Waited time.Duration
	// Frames are its calls, the innermost first.
	Frames []Frame
	// CreatedBy is the function that started it, and Creator that goroutine's ID; 0 before Go 1.21.
	CreatedBy string
	Creator   int
}

// Frame is one call on a stack.
type Frame struct {
	// Func has the import path, the receiver and the name.
	Func string
	// Args are the words of its arguments.
	Args []Word
	// Hidden reports whether words are not shown, as those of an inlined call.
	Hidden bool
	// File is file:line.
	File string
	// Offset is the position of the call in the function; 0 for an inlined one.
	Offset uint64
}

// Word is one machine word of an argument.
type Word struct {
	Value uint64
	// Stale reports whether Go marks the value as possibly out of date.
	Stale bool
}

var (
	headLine = regexp.MustCompile(`goroutine (\d+)(?: [^\[\]]*)? \[([^\]]*)\][^:]*:\s*$`)
	fileLine = regexp.MustCompile(`^\S[^()]*\.(?:go|s):\d+(?:$| )`)
	offset   = regexp.MustCompile(` \+0x([0-9a-f]+)`)
	waited   = regexp.MustCompile(`^(\d+) minutes$`)
	creator  = regexp.MustCompile(` in goroutine (\d+)$`)
	word     = regexp.MustCompile(`0x([0-9a-f]+)(\??)|_|\.\.\.`)
)

// Parse decodes a dump as runtime.Stack, pprof with debug=2, a panic or a signal handler
// writes it. Each line may have a prefix of the same length, as in a system log; a dump in
// one quoted log line is read too.
func Parse(text []byte) (*Dump, error) {
	d := &Dump{}
	if len(text) > MaxBytes {
		d.Truncated = true
		text = text[:MaxBytes]
	}
	d.parse(unquote(text))
	if len(d.Goroutines) > 0 {
		return d, nil
	}
	if bytes.HasPrefix(text, []byte("goroutine profile: total")) {
		return nil, ErrCounted
	}
	return nil, ErrNotDump
}

// unquote returns the dump within a log line such as msg="=== BEGIN goroutine stack dump
// ===\ngoroutine 1 [running]:\n...". Any other text is returned as it is.
func unquote(text []byte) []byte {
	header := bytes.Index(text, []byte(`\ngoroutine `))
	if header < 0 {
		return text
	}
	quote := bytes.LastIndexByte(text[:header], '"')
	if quote < 0 {
		return text
	}
	quoted, err := strconv.QuotedPrefix(string(text[quote:]))
	if err != nil {
		return text
	}
	message, err := strconv.Unquote(quoted)
	if err != nil {
		return text
	}
	return []byte(message)
}

func (d *Dump) parse(text []byte) {
	var g *Goroutine // the present one, nil between two
	prefix := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n ")
		if head := headLine.FindStringSubmatchIndex(line); head != nil {
			prefix = head[0]
			d.Goroutines = append(d.Goroutines, newGoroutine(line[head[2]:head[3]], line[head[4]:head[5]]))
			g = &d.Goroutines[len(d.Goroutines)-1]
			continue
		}
		body := strings.TrimSpace(line[min(prefix, len(line)):])
		if body == "" {
			g = nil
		}
		if g != nil {
			g.line(body)
		}
	}
}

// newGoroutine returns a goroutine of its number and its state, such as "select, 3 minutes,
// locked to thread".
func newGoroutine(number, state string) Goroutine {
	id, _ := strconv.Atoi(number) // 0 for a number that does not fit
	parts := strings.Split(state, ", ")
	g := Goroutine{ID: id, State: cut(parts[0])}
	for _, part := range parts[1:] {
		if m := waited.FindStringSubmatch(part); m != nil {
			minutes, _ := strconv.Atoi(m[1]) // the largest for one that does not fit
			g.Waited = time.Duration(min(minutes, maxMinutes)) * time.Minute
		}
	}
	return g
}

// line adds a line of a goroutine.
func (g *Goroutine) line(body string) {
	if function, ok := strings.CutPrefix(body, "created by "); ok {
		if m := creator.FindStringSubmatchIndex(function); m != nil {
			g.Creator, _ = strconv.Atoi(function[m[2]:m[3]])
			function = function[:m[0]]
		}
		g.CreatedBy = cut(function)
		return
	}
	if fileLine.MatchString(body) {
		g.place(body)
		return
	}
	bracket := argumentsAt(body)
	if bracket > 0 && g.CreatedBy == "" && len(g.Frames) < maxFrames {
		g.Frames = append(g.Frames, newFrame(body[:bracket], body[bracket:]))
	}
}

// place adds the position to the last frame.
func (g *Goroutine) place(body string) {
	if len(g.Frames) == 0 || g.CreatedBy != "" {
		return
	}
	f := &g.Frames[len(g.Frames)-1]
	if m := offset.FindStringSubmatch(body); m != nil {
		f.Offset, _ = strconv.ParseUint(m[1], 16, 64)
	}
	file, _, _ := strings.Cut(body, " ")
	f.File = cut(file)
}

func newFrame(name, arguments string) Frame {
	f := Frame{Func: cut(name)}
	for _, m := range word.FindAllStringSubmatch(arguments, maxWords) {
		if m[1] == "" {
			f.Hidden = true
			continue
		}
		value, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			f.Hidden = true
			continue
		}
		f.Args = append(f.Args, Word{Value: value, Stale: m[2] != ""})
	}
	return f
}

// argumentsAt returns where the argument list at the end of a line begins, -1 for none.
func argumentsAt(line string) int {
	if !strings.HasSuffix(line, ")") {
		return -1
	}
	depth := 0
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ')':
			depth++
		case '(':
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

func cut(s string) string { return strings.Clone(s[:min(len(s), maxName)]) }

// Receiver returns the type of a method's pointer receiver, "" for any other function.
func (f *Frame) Receiver() string {
	prefix, rest, ok := strings.Cut(f.Func, "(*")
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(rest, ")")
	if !ok {
		return ""
	}
	return prefix + "(*" + name + ")"
}

// Package returns the import path of a function.
func (f *Frame) Package() string {
	slash := strings.LastIndexByte(f.Func, '/')
	dot := strings.IndexByte(f.Func[slash+1:], '.')
	if dot < 0 {
		return f.Func
	}
	return f.Func[:slash+1+dot]
}

// Short returns the name of a function without the path of its module.
func (f *Frame) Short() string { return short(f.Func) }

func short(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// hasWord reports whether the frame has the pointer among its arguments. Stale words count
// only if stale is true.
func (f *Frame) hasWord(pointer uint64, stale bool) bool {
	for _, w := range f.Args {
		if w.Value == pointer && (stale || !w.Stale) {
			return true
		}
	}
	return false
}
