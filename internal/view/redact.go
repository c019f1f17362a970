package view

import (
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// redacted stands where the name of a pod may not be shown.
const redacted = "(a pod)"

// redactor takes the names of the pods that the facts name out of a text, and
// the ids of their sandboxes. The
// texts are written for people and may well say which pod; where names may not
// be shown that must not slip through.
type redactor struct{ names []string }

// shownID is how much of a sandbox's id crictl shows; others show one less.
const shownID = 13

// newRedactor returns a redactor that changes nothing when names is true.
func newRedactor(f *health.Facts, names bool) redactor {
	if names {
		return redactor{}
	}
	var out redactor
	r := &f.Relist
	for _, list := range [][]health.PodInspection{r.Inspecting, r.Failing, r.Slowest} {
		out.names = append(out.names, podNames(list)...)
	}
	if c := f.Evidence.Chain; c != nil {
		for _, l := range c.Links {
			if l.Kind == health.KindContainer || l.Kind == health.KindPod {
				out.names = append(out.names, l.Name)
				out.names = append(out.names, strings.Split(l.Name, "/")[1:]...)
			}
		}
	}
	if c := f.Evidence.Children; c != nil {
		for _, child := range slices.Concat(c.Stuck, c.Old) {
			id := child.Sandbox
			out.names = append(out.names, id, id[:min(shownID, len(id))], id[:min(shownID-1, len(id))])
		}
	}
	return out
}

// podNames are the names of pods as texts hold them, the longest form first, or
// its parts would be left standing.
func podNames(list []health.PodInspection) (names []string) {
	for _, p := range list {
		names = append(names, p.Namespace+"/"+p.Name, p.UID, p.Name)
	}
	return names
}

func (r redactor) text(s string) string {
	for _, name := range r.names {
		s = replaceWord(s, name, redacted)
	}
	return s
}

// replaceWord replaces name where it stands alone: a pod called "list" must not
// tear ListContainers apart.
func replaceWord(s, name, with string) string {
	if name == "" || name == "/" {
		return s
	}
	var b strings.Builder
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 {
			b.WriteString(s[from:])
			return b.String()
		}
		i += from
		end := i + len(name)
		b.WriteString(s[from:i])
		if (i > 0 && isNameByte(s[i-1])) || (end < len(s) && isNameByte(s[end]) && !endsWord(s[end:])) {
			b.WriteString(name)
		} else {
			b.WriteString(with)
		}
		from = end
	}
}

// isNameByte tells whether c may be part of a Kubernetes name. An underscore may
// not: runtimes join names by it.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.'
}

// endsWord tells whether s begins with a full stop that ends a sentence rather
// than one inside a name.
func endsWord(s string) bool { return s[0] == '.' && (len(s) == 1 || !isNameByte(s[1])) }
