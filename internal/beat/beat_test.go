package beat

import (
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
		wait := b.after(now, Most)
		if wait < 0 || wait > Most {
			t.Fatalf("waits %s, at most %s", wait, Most)
		}
		now = now.Add(wait)
		lengths[wait] = true
		if beatsIn := b.after(now, 5*Most); !onBeat(&b, now.Add(beatsIn)) || beatsIn <= 4*Most {
			t.Fatalf("5 s away: waits %s", beatsIn)
		}
	}
	if len(lengths) < 100 {
		t.Errorf("%d lengths of 200 waits", len(lengths))
	}
	if wait := b.after(time.Unix(0, 0), Most); wait > Most {
		t.Errorf("the clock was set back: waits %s", wait)
	}
}

func onBeat(b *beats, at time.Time) bool {
	for _, next := range b.next {
		if next.Equal(at) {
			return true
		}
	}
	return false
}

// TestAfterShort: where no beat comes in time, the wait is what was asked for.
func TestAfterShort(t *testing.T) {
	var b beats
	now := time.Unix(1000, 0)
	if wait := b.after(now, 100*time.Millisecond); wait != 100*time.Millisecond {
		t.Errorf("waits %s", wait)
	}
}
