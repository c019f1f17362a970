// Package plain makes text from outside harmless to every display. Names and messages
// come from the runtime, and any user who may start a pod controls parts of them: a
// log, a terminal or systemd must never take a part of one for a command or for a line
// of plegd. It is independent of the rest of plegd.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with everything that a terminal could take for a command
// written out as in Go: control characters, line breaks, invalid UTF-8, and the marks
// that reverse or hide text.
func Text(s string) string {
	quoted := strconv.Quote(s)
	return unescaper.Replace(quoted[1 : len(quoted)-1])
}

// unescaper undoes what strconv.Quote escapes and no display takes for a command.
var unescaper = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// Cut is CutTo with 256 bytes.
func Cut(s string) string { return CutTo(s, 256) }

// CutTo returns the begin of a text in at most n bytes, the last of which are dots, in
// memory of its own. A shorter text stays as it is.
func CutTo(s string, n int) string {
	if len(s) > n {
		s = s[:n-len("...")] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

// JSON returns encoded JSON, or any text that holds its strings, with the characters
// that Text escapes and JSON's encoders do not as JSON escapes: the value stays the
// same. Line breaks and tabs between the values stay.
func JSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r) && r != utf8.RuneError:
			out = append(out, b[i:i+n]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}
