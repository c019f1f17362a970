package evidence

import (
	"regexp"
	"testing"

	"github.com/plegd/plegd/internal/health"
)

// FuzzAnswers checks what a hop, or any program in its place, answers to a probe.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 500 Internal Server Error\n", "HTTP/1.", "HTTP/1.1 2x0 OK", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		cause, detail := dockerPing.check(string(answer))
		if ok := cause == health.CauseNone; ok != statusOK.Match(answer) || len(detail) > 2*maxDetail {
			t.Errorf("%q: %s, %q", answer, cause, detail)
		}
		if cause, _ := grpcHello.check(string(answer)); cause == health.CauseNone && (len(answer) < 9 || answer[3] != 4) {
			t.Errorf("%q: %s", answer, cause)
		}
	})
}

var statusOK = regexp.MustCompile(`^HTTP/1\.[^\n] 200`)
