package view

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
)

func TestFloat(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0s", -1: "0s", 0.000084: "0.1ms", 0.0004: "0.4ms", 0.0099: "9.9ms", 0.012: "12ms", 0.9994: "999ms", 0.9999: "1.0s",
		2.34: "2.3s", 9.94: "9.9s", 9.96: "10s", 47.4: "47s", 59.6: "1m00s", 133: "2m13s", 3599.6: "1h00m", 11040: "3h04m",
		190800: "2d05h",
	} {
		check.Equal(t, float(s), want, "formatSeconds(%v)", s)
	}
	check.Equal(t, countdown(200*time.Millisecond), "1s", "a countdown must not say 0 before it is over")
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"", 5, ""},
		{"a b c", 5, "a b c"},
		{"a bb ccc", 4, "a bb|ccc"},
		{"abcdefghij", 4, "abcdefghij"},
		{"ab cdefghij k", 4, "ab|cdefghij|k"},
		{"a " + unbroken("b  c") + " d", 4, "a|b  c|d"},
		{"a " + unbroken("bb ccc") + ": d", 4, "a|bb ccc:|d"},
	} {
		check.Equal(t, strings.Join(wrap(tt.in, tt.width), "|"), tt.want, "wrap(%q, %d)", tt.in, tt.width)
	}
}
