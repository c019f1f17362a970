// Package plain makes text from outside harmless to every display. Names and messages
// come from the runtime, and any user who may start a pod controls parts of them: a
// log, a terminal or systemd must never take a part of one for a command or for a line
// of plegd. It is independent of the rest of plegd.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with everything that a terminal could take for a command
// written out: control characters, line breaks, invalid UTF-8, and the marks
// that reverse or hide text.
func Text(s string) string {
	if ascii(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		i += n
	}
	return b.String()
}

// Cut returns at most the first 256 bytes of a text.
func Cut(s string) string {
	if len(s) > 256 {
		s = s[:256] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

// ascii reports whether s is all printable ASCII, as nearly every string is.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// JSON returns encoded JSON, or any text that holds its strings, with the characters
// that Text escapes and JSON's encoders do not as JSON escapes: the value stays the
// same. Line breaks and tabs between the values stay.
func JSON(b []byte) []byte {
	if !hasUnsafe(b) {
		return b
	}
	out := make([]byte, 0, len(b)+len(b)/8)
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

func hasUnsafe(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' || c > '~' {
			return true
		}
	}
	return false
}
