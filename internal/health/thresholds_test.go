package health

import (
	"strings"
	"testing"
	"time"
)

// TestThresholds: each threshold reads as a sentence with its number in it.
func TestThresholds(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{3 * time.Second, "3s"}, {5 * time.Minute, "5m"}, {1250 * time.Millisecond, "1.25s"}, {330 * time.Second, "5m30s"}, {100 * time.Millisecond, "100ms"}, {2 * time.Hour, "2h"},
		{Share(.95), "95 %"}, {Percent(20), "20 %"}, {0.5, "0.5"}, {5000, "5000"},
	} {
		if got := thresholdValue(tt.value); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.value, got, tt.want)
		}
	}
	for _, r := range table {
		for _, th := range r.Thresholds {
			if want := 1; th.Value != nil && strings.Count(th.Text, "%s") != want || th.Value == nil && strings.Contains(th.Text, "%") {
				t.Errorf("%s: %q with the value %v", r.ID, th.Text, th.Value)
			}
			if s := th.String(); strings.Contains(s, "%!") {
				t.Errorf("%s: %q", r.ID, s)
			}
		}
	}
}
