package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// TestAlarming: a new connection and lists that stumble ask for fast sampling, beside what fails or hangs.
func TestAlarming(t *testing.T) {
	now := time.Now()
	lists := func(last time.Duration) facts.Relist {
		ms := time.Millisecond
		return facts.Relist{Lists: []time.Duration{4 * ms, 5 * ms, 90 * ms, 5 * ms, last}}
	}
	for name, tt := range map[string]struct {
		f    facts.Facts
		want bool
	}{
		"calm":                             {f: facts.Facts{Relist: lists(6 * time.Millisecond)}},
		"a connection of old":              {f: facts.Facts{Dial: facts.Dial{At: now.Add(-time.Minute)}}},
		"a new connection":                 {f: facts.Facts{Dial: facts.Dial{At: now.Add(-time.Second)}}, want: true},
		"lists of ten times the median":    {f: facts.Facts{Relist: lists(80 * time.Millisecond)}},
		"lists that stand for a moment":    {f: facts.Facts{Relist: lists(250 * time.Millisecond)}, want: true},
		"the first lists, which take long": {f: facts.Facts{Relist: facts.Relist{Lists: []time.Duration{time.Second}}}},
		"a relist has failed":              {f: facts.Facts{Relist: facts.Relist{Failures: 1}}, want: true},
	} {
		check.Equal(t, alarming(&tt.f, now), tt.want, "%s", name)
	}
}
