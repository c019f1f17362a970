package proc

import (
	"math"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

func TestMaxFDs(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for line, want := range map[string]int{
		"Max open files            1024                 524288               files     \n": 1024,
		"Max open files            unlimited            unlimited            files     \n": math.MaxInt,
		"Max open files            0                    0                    files":        0,
		"Max open files            -1                   1                    files":        -1,
		"Max open files            99999999999999999999 1                    files":        -1,
		"Max open files": -1,
		"Max open":       -1,
		"":               -1,
	} {
		if got := MaxFDs([]byte(head + line)); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

func FuzzMaxFDs(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte("Max open files            1024                 524288               files     \n"))
	f.Add([]byte("Max open files            unlimited            unlimited            files     \n"))
	f.Add([]byte("Max open files -7"))
	f.Add([]byte("Max open files"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := MaxFDs(b); n < -1 || n > -1 && !strings.Contains(string(b), "Max open files") {
			t.Errorf("%d of %q", n, b)
		}
	})
}
