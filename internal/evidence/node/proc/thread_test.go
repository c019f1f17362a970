package proc

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

func FuzzParseSchedstat(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, s := range []string{"1000 2000 3\n", "0 0 0", "-1 5 1", "1", "", "9223372036854775807 9223372036854775807 1", "99999999999999999999 1 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := ParseSchedstat(b)
		if ok && len(strings.Fields(string(b))) != 3 || !ok && s != (Schedstat{}) {
			t.Errorf("%+v, %v of %q", s, ok, b)
		}
	})
}
