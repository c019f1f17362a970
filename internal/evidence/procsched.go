package evidence

import (
	"bytes"
	"strconv"
)

// schedstat is a /proc/PID/schedstat, or a thread's: nanoseconds on a CPU,
// nanoseconds runnable without one, and how often it was put on one.
type schedstat struct{ run, delay, slices uint64 }

// parseSchedstat decodes "run delay slices"; ok is false for anything else. The
// parser of procfs takes a regular expression to it, for every thread.
func parseSchedstat(b []byte) (s schedstat, ok bool) {
	b = bytes.TrimRight(b, "\n")
	for i, p := range []*uint64{&s.run, &s.delay, &s.slices} {
		field, rest, more := bytes.Cut(b, []byte(" "))
		if more != (i < 2) {
			return schedstat{}, false
		}
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return schedstat{}, false
		}
		*p, b = n, rest
	}
	return s, true
}
