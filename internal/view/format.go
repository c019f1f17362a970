package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// maxText is the most characters of one message that is shown to a person. A
// runtime may say more; /api/v1/status has all of it.
const maxText = 700

// Left prints a countdown in whole seconds, rounded up: 0 is over.
func Left(d time.Duration) string {
	if s := math.Ceil(d.Seconds()); s > 0 && s < 60 {
		return fmt.Sprintf("%.0fs", s)
	}
	return health.Seconds((d + time.Second - 1).Truncate(time.Second))
}

// Shorten cuts s to at most n characters, the last of them dots.
func Shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-3)]) + "..."
}

// Say makes a text from outside fit to be shown to a person.
func Say(s string) string { return Shorten(plain.Text(s), maxText) }

// noBreak stands for a space at which Wrap does not break.
const noBreak = '\x00'

// Unbroken returns s as one word to Wrap: it stays on one line, also where it is longer.
func Unbroken(s string) string { return strings.ReplaceAll(s, " ", string(noBreak)) }

// Wrap breaks s into lines of at most width characters at spaces; a word that
// is longer is broken where the line ends, unless it is Unbroken.
func Wrap(s string, width int) []string {
	var lines []string
	var line []rune
	flush := func() {
		lines = append(lines, strings.ReplaceAll(string(line), string(noBreak), " "))
		line = line[:0]
	}
	for word := range strings.FieldsSeq(s) {
		r := []rune(word)
		if len(line) > 0 && len(line)+1+len(r) > width {
			flush()
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for len(line)+len(r) > width && !slices.Contains(r, noBreak) {
			n := width - len(line)
			line = append(line, r[:n]...)
			r = r[n:]
			flush()
		}
		line = append(line, r...)
	}
	if len(line) > 0 || len(lines) == 0 {
		flush()
	}
	return lines
}
