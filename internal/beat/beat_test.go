package beat

import (
	"slices"
	"testing"
	"time"
)

// TestAfter: who waits for a second or more wakes up at a moment that others have as
// well, not later than it asked for, and two waits in a row are not equally long.
func TestAfter(t *testing.T) {
	var b beats
	now := time.Unix(1000, 0)
	lengths := map[time.Duration]bool{}
	for range 200 {
		wait := b.after(now, most)
		if wait < 0 || wait > most {
			t.Fatalf("waits %s, at most %s", wait, most)
		}
		now = now.Add(wait)
		lengths[wait] = true
		if beatsIn := b.after(now, 5*most); !onBeat(&b, now.Add(beatsIn)) || beatsIn <= 4*most {
			t.Fatalf("5 s away: waits %s", beatsIn)
		}
	}
	if len(lengths) < 100 {
		t.Errorf("%d lengths of 200 waits", len(lengths))
	}
	if wait := b.after(time.Unix(0, 0), most); wait > most {
		t.Errorf("the clock was set back: waits %s", wait)
	}
	now = time.Unix(-1000, 0)
	if _, first := b.around(now, now.Add(most)); first.Sub(now) > 2*most {
		t.Errorf("the clock was set back: a limit of %s ends after %s", most, first.Sub(now))
	}
}

func onBeat(b *beats, at time.Time) bool { return slices.ContainsFunc(b.next, at.Equal) }

// TestAround: a limit ends at a moment that others have as well, and not before its time.
func TestAround(t *testing.T) {
	var b beats
	now := time.Unix(1000, 0)
	for _, d := range []time.Duration{0, 500 * time.Millisecond, 3 * time.Second, 3 * time.Second} {
		end := now.Add(d)
		last, first := b.around(now, end)
		if first.Before(end) || first.Sub(end) > most || !onBeat(&b, first) {
			t.Errorf("%s: ends after %s; beats: %s", d, first.Sub(now), b.next)
		}
		if !last.Before(first) || !last.Equal(now) && !onBeat(&b, last) {
			t.Errorf("%s: the beat before is after %s; beats: %s", d, last.Sub(now), b.next)
		}
	}
}

// TestAfterSpread: where the last beat comes too soon, the wait is at random and at
// most what was asked for.
func TestAfterSpread(t *testing.T) {
	var b beats
	now := time.Unix(1000, 0)
	for _, d := range []time.Duration{100 * time.Millisecond, 1500 * time.Millisecond} {
		lengths := map[time.Duration]bool{}
		for range 100 {
			wait := b.after(now, d)
			if wait < d*3/4 || wait > d {
				t.Fatalf("%s: waits %s", d, wait)
			}
			lengths[wait] = true
		}
		if len(lengths) < 50 {
			t.Errorf("%s: %d lengths of 100 waits", d, len(lengths))
		}
	}
}
