//go:build e2e

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	// leakLimit is containerd's descriptor limit while it leaks, leakEvery the time
	// between two connections that are never closed.
	leakLimit = 1024
	leakEvery = 3 * time.Second
	// leakNamed is how soon it must be named: five minutes are followed before anything
	// is said of a trend.
	leakNamed = 7 * time.Minute
	// leakError is how far off the predicted moment may be.
	leakError = 0.2
	// noiseFor is longer than what is followed of a quantity.
	noiseFor = 11 * time.Minute
	noisy    = 60
)

// minutesLeft is what the evidence of a reason says of a trend that has two minutes or
// more.
var minutesLeft = regexp.MustCompile(`at its limit in about (\d+) min at the present rate`)

// TestCaseBookTrend: a containerd whose descriptors leak slowly is named with the time
// that is left, and one whose descriptors come and go, and rise once, is not.
func TestCaseBookTrend(t *testing.T) {
	needContainerd(t)
	needCase(t, "trend")
	t.Run("leak", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, &fault{})
		b.SetFileLimit(leakLimit)
		b.watch(&fault{})
		began := time.Now()
		for tick := time.NewTicker(leakEvery); ; <-tick.C {
			b.leak()
			said, minutes := b.trend()
			took := time.Since(began)
			if said == "" {
				if took > leakNamed {
					t.Fatalf("the leak is not named after %s", took)
				}
				continue
			}
			open := b.openFiles()
			left := time.Duration(leakLimit-open) * leakEvery
			lab.Report(t, "%s, a descriptor leaks every %s: %s after %.0f s with %d of %d open, %q; by the true rate %.1f min are left",
				lab.RuntimeColumn(), leakEvery, explain(t, b.plegd).Reason, took.Seconds(), open, leakLimit, said, left.Minutes())
			if off := minutes - left.Minutes(); max(off, -off) > leakError*left.Minutes() {
				t.Errorf("about %.0f min are said to be left, and %.1f are", minutes, left.Minutes())
			}
			if !strings.HasPrefix(said, health.FDsRunningOut) || took < 5*time.Minute || open > leakLimit/2 {
				t.Errorf("%q after %s, with %d descriptors open", said, took, open)
			}
			return
		}
	})
	t.Run("noise", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, &fault{})
		b.SetFileLimit(leakLimit)
		b.watch(&fault{})
		began, stepped := time.Now(), false
		for tick := time.NewTicker(time.Second); time.Since(began) < noiseFor; <-tick.C {
			open := connectTo(b.socket, rand.N(noisy))
			time.AfterFunc(rand.N(20*time.Second), func() { closeAll(open) })
			if !stepped && time.Since(began) > noiseFor/2 {
				stepped = true
				for range 100 {
					b.leak()
				}
			}
			if said, _ := b.trend(); said != "" {
				t.Fatalf("after %s, with %d descriptors open: %s", time.Since(began), b.openFiles(), said)
			}
		}
		lab.Report(t, "%s, descriptors that come and go, up to %d a second, and rise by 100 once: nothing is said of a trend in %s", lab.RuntimeColumn(), noisy, noiseFor)
	})
}

// leak opens a connection to the runtime that is used once and not closed.
func (b *bench) leak() {
	b.t.Helper()
	b.must(b.CRI(b.t).List(b.t.Context()))
}

func (b *bench) openFiles() int {
	b.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.Pid()))
	b.must(err)
	return len(open)
}

// trend returns the reason that speaks of a trend, with its evidence, and the minutes
// that are said to be left; "" for none.
func (b *bench) trend() (said string, minutes float64) {
	b.t.Helper()
	s, err := b.plegd.Status()
	b.must(err)
	for _, r := range s.Reasons {
		text := strings.Join(r.Evidence, "; ")
		if !strings.Contains(text, "at the present rate") {
			continue
		}
		if m := minutesLeft.FindStringSubmatch(text); m != nil {
			minutes, err = strconv.ParseFloat(m[1], 64)
			b.must(err)
		}
		return r.ID + ": " + text, minutes
	}
	return "", 0
}
