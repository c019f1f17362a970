package health

import (
	"strings"
	"testing"
)

// FuzzReplaceWord: no name is left standing alone in a text, and what is not a
// name stays.
func FuzzReplaceWord(f *testing.F) {
	f.Add("an inspection of kube-system/coredns-1 failed: coredns-1.", "coredns-1")
	f.Add("aaaa", "a")
	f.Add("", "")
	f.Add("(a pod)", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		out := replaceWord(text, name, "\x00")
		if name == "" || name == "/" || strings.Contains(text, "\x00") || strings.Contains(name, "\x00") {
			return
		}
		if strings.ReplaceAll(out, "\x00", name) != text {
			t.Errorf("%q without %q is %q", text, name, out)
		}
		for rest := " " + out + " "; ; {
			before, after, ok := strings.Cut(rest, " "+name+" ")
			if !ok {
				break
			}
			t.Errorf("%q still stands in %q (%q, %q)", name, out, before, after)
			rest = after
		}
	})
}
