package evidence

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// kubeletLastSeen is the kubelet's own last seen, in whole seconds of Unix time.
const kubeletLastSeen = "kubelet_pleg_last_seen_seconds"

const (
	// maxMetrics is the most bytes of a kubelet's metrics that are read: large
	// nodes have a few MB of them.
	maxMetrics = 32 << 20
	// maxMetricsLine is the most bytes of a line that are looked at.
	maxMetricsLine = 4 << 10
)

// readLastSeen reads metrics in the text format for the kubelet's last seen; ok
// is false when they have none, and the time is zero when the kubelet has never
// seen its PLEG. It looks for that one line only: taking MBs of metrics apart
// every few seconds would be plegd's largest cost. It reads on to the end, so
// that the connection can be used again.
func readLastSeen(r io.Reader) (seen time.Time, ok bool, err error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxMetricsLine)
	for {
		line, err := lines.ReadSlice('\n')
		if !ok {
			seen, ok = parseLastSeen(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // no metric of interest is that long
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF) && limited.N == 0:
			return time.Time{}, false, fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
		case errors.Is(err, io.EOF):
			return seen, ok, nil
		case err != nil:
			return time.Time{}, false, err
		}
	}
}

// parseLastSeen reads one line: the name, the value and perhaps a timestamp.
func parseLastSeen(line []byte) (time.Time, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(kubeletLastSeen))
	if !ok {
		return time.Time{}, false
	}
	rest = bytes.TrimPrefix(rest, []byte("{}"))
	if len(rest) == 0 || rest[0] != ' ' && rest[0] != '\t' {
		return time.Time{}, false
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return time.Time{}, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	// A time that was never set is far below 0; what is beyond all clocks is no
	// time either.
	if err != nil || math.IsNaN(v) || v > 1<<33 {
		return time.Time{}, false
	}
	if v <= 0 {
		return time.Time{}, true
	}
	whole, fraction := math.Modf(v)
	return time.Unix(int64(whole), int64(fraction*1e9)), true
}
