package cgroup

import (
	"bytes"
	"strconv"
	"strings"
)

// ParsePressure returns avg10 of the two lines of a pressure file; -1 for one that
// is not there.
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
func ParsePressure(b []byte) (some, full float64) {
	some, full = -1, -1
	for line := range bytes.Lines(b) {
		kind, rest, _ := strings.Cut(string(bytes.TrimSpace(line)), " ")
		value, ok := strings.CutPrefix(rest, "avg10=")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(value, " ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil || n < 0 || n > 100:
		case kind == "some":
			some = n
		case kind == "full":
			full = n
		}
	}
	return some, full
}
