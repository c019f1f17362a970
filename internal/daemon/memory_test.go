package daemon

import "testing"

func TestCollectorPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: mostPercent, 1 << 20: mostPercent, 2 << 20: 100, 4 << 20: 50, 25 << 20: leastPercent} {
		if got := collectorPercent(live); got != want {
			t.Errorf("%d bytes: %d %%, want %d %%", live, got, want)
		}
	}
}
