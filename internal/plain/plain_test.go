package plain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"plain text":        "plain text",
		`\n "quoted" \\`:    `\n "quoted" \\`,
		"Umlaute: äöü 日本":   "Umlaute: äöü 日本",
		"a\nb\tc\rd":        `a\nb\tc\rd`,
		"\x1b[2J":           `\x1b[2J`,
		"\x7f\u009b":        `\x7f\u009b`,
		"\u202eabc":         `\u202eabc`,
		"\xff\xfe":          `\xff\xfe`,
		"zero\u200bwidth":   `zero\u200bwidth`,
		"a\ufffdb":          "a\ufffdb",
		"\U000e0001 tagged": `\U000e0001 tagged`,
	} {
		check.Equal(t, Text(in), want, "Text(%+q)", in)
	}
}

func harmless(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2Jb\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if out := Text(s); !harmless(out) {
			t.Errorf("Text(%+q) = %+q", s, out)
		}
	})
}

// FuzzJSON: the value is the same, and nothing in it can be taken for a command.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2Jb", "\u009b\u202e\x7f", "\U000e0001", "\xff", "\ufffd", "<script>", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(map[string]string{"k": s})
		must.Do(t, err)
		out := JSON(b)
		var before, after map[string]string
		if json.Unmarshal(b, &before) != nil || json.Unmarshal(out, &after) != nil || before["k"] != after["k"] {
			t.Errorf("%q has become %q", b, out)
		}
		if !harmless(string(out)) {
			t.Errorf("JSON(%+q) = %+q", b, out)
		}
	})
}
