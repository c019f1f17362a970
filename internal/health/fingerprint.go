package health

import "strings"

// ID returns a fingerprint of the link without names of pods, containers, hosts or paths:
// links of different nodes with the same cause have the same one. Empty for none.
func (l *Link) ID() string {
	switch l.Kind {
	case KindRuntime, KindShim, KindHelper, KindProcess:
		return FingerprintWord(l.Name)
	case KindCgroup:
		// The slice below the root, as in /kubepods.slice/kubepods-pod123.slice.
		slice, _, _ := strings.Cut(strings.TrimPrefix(l.Name, "/"), "/")
		return FingerprintWord(slice)
	default:
		return l.Fingerprint
	}
}

// maxWord is the maximum length of a fingerprint's word.
const maxWord = 40

const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// FingerprintWord returns s with characters that are unusual in a label replaced.
func FingerprintWord(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(wordCharacters, r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), maxWord)]
}
