package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Threshold is a number that a reason goes by. The rules compare with the same
// value, so what the documentation says cannot differ from what is done.
type Threshold struct {
	// Text says what the number is of; its one %s stands for the value.
	Text string
	// Value is a time.Duration, a Share, a Percent, a number, or nil for a
	// threshold that another package has: Text names it then.
	Value any
}

// Share is a part of a whole, 0 to 1.
type Share float64

// Percent is a share of time in per cent, as /proc/pressure and the pressure
// files of a cgroup print it.
type Percent float64

// String returns the threshold in words.
func (t Threshold) String() string {
	if t.Value == nil {
		return t.Text
	}
	return fmt.Sprintf(t.Text, thresholdValue(t.Value))
}

func thresholdValue(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return durationText(v)
	case Share:
		return percentText(float64(v) * 100)
	case Percent:
		return percentText(float64(v))
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func percentText(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) + " %" }

// durationText prints a duration without the units that are zero: 5m, 1.25s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// thresholdsText lists the thresholds of a row, "" for none.
func thresholdsText(list []Threshold) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "; ")
}
