package proc

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// MaxFDs is the soft limit of "Max open files" in /proc/PID/limits; -1 when it
// cannot be read, MaxInt for unlimited.
func MaxFDs(limits []byte) int {
	for line := range bytes.Lines(limits) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) == 0 {
			return -1
		}
		if fields[0] == "unlimited" {
			return math.MaxInt
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || n < 0 {
			return -1
		}
		return n
	}
	return -1
}
