package evidence

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	activityEvery = 2 // ticks
	activityCalm  = 5
	// usualSpacing is the most time between two samples that count for the usual
	// rate: what lies in between a pause is not usual.
	usualSpacing = 2 * activityCalm * tick
	// recentWeight is how much the newest rate counts beside those before.
	recentWeight = 0.25
)

// Activity is how much the kernel does.
type Activity struct {
	At time.Time
	// Switches counts the context switches since boot; Rate is how many it
	// usually makes a second, 0 while that is not known.
	Switches uint64
	Rate     float64
}

// NewActivity returns the source of the kernel's context switches (ctxt of
// /proc/stat). It looks every 5 s, every 2 s while something may be wrong, and
// needs no privilege.
func NewActivity(root string) *Watch[Activity] {
	var last Activity
	path := filepath.Join(root, "stat")
	return NewWatch(Spec[Activity]{Name: "activity", Every: activityEvery, Calm: activityCalm, Timeout: time.Second, Gather: func(context.Context) (*Activity, error) {
		b, err := proc.ReadFile(path)
		if err != nil {
			return nil, err
		}
		n, err := allSwitches(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		last = last.next(time.Now(), n)
		a := last
		return &a, nil
	}})
}

// next is the sample after a.
func (a Activity) next(at time.Time, switches uint64) Activity {
	out := Activity{At: at, Switches: switches, Rate: a.Rate}
	passed := at.Sub(a.At)
	if a.At.IsZero() || passed <= 0 || passed > usualSpacing || switches < a.Switches {
		return out
	}
	rate := float64(switches-a.Switches) / passed.Seconds()
	if a.Rate > 0 {
		rate = recentWeight*rate + (1-recentWeight)*a.Rate
	}
	out.Rate = rate
	return out
}

// allSwitches returns ctxt of /proc/stat.
func allSwitches(stat []byte) (uint64, error) {
	for line := range bytes.Lines(stat) {
		if value, ok := bytes.CutPrefix(line, []byte("ctxt ")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		}
	}
	return 0, fmt.Errorf("no line ctxt")
}
