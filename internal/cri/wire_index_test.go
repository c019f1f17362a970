package cri

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestIndex compares the table with a map, with hashes of which many are alike
// in what the table looks at: a wrong entry would be another container's state.
func TestIndex(t *testing.T) {
	alike := []func(i uint64) uint64{
		func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 },             // nothing alike
		func(i uint64) uint64 { return i << 32 },                            // the same place
		func(i uint64) uint64 { return i },                                  // the same upper half
		func(i uint64) uint64 { return i%7<<32 | i%3 },                      // both, of several
		func(uint64) uint64 { return 0 },                                    // everything
		func(i uint64) uint64 { return 0xffffffff_ffffffff - i%5 },          // at the end of the table
		func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 &^ (1 << 6) }, // some
	}
	for kind, hash := range alike {
		rng := rand.New(rand.NewPCG(1, uint64(kind)))
		var x index
		var hashes []uint64
		slots := map[int32]uint64{} // of what is in the table
		for range 400 {
			switch n := rng.IntN(10); {
			case n == 0 && len(slots) > 0: // some go
				for slot := range hashes {
					if rng.IntN(3) == 0 {
						delete(slots, int32(slot))
					}
				}
				x.rebuild(len(slots), maps.All(slots))
			default:
				h := hash(rng.Uint64N(1 << 40))
				hashes = append(hashes, h)
				slot := int32(len(hashes) - 1)
				slots[slot] = h
				x.insert(h, slot, maps.All(slots))
			}
			if x.used != len(slots) {
				t.Fatalf("hashes %d: %d entries, want %d", kind, x.used, len(slots))
			}
		}
		for slot, h := range slots {
			got, ok := x.lookup(h, func(s int32) bool { return s == slot })
			if !ok || got != slot {
				t.Fatalf("hashes %d: slot %d of hash %x: %d, %t", kind, slot, h, got, ok)
			}
			// find's answer may be another's of the same upper half.
			if got := x.find(h); got < 0 || slots[got]>>32 != h>>32 {
				t.Fatalf("hashes %d: found slot %d for hash %x", kind, got, h)
			}
		}
		if _, ok := x.lookup(0x1234_5678_9abc, func(int32) bool { return false }); ok {
			t.Fatalf("hashes %d: what is not there was found", kind)
		}
		if len(x.cells) < 2*len(slots) {
			t.Fatalf("hashes %d: %d cells for %d entries: it is more than half full", kind, len(x.cells), len(slots))
		}
	}
	var empty index
	if empty.find(0) != -1 {
		t.Error("something is in an empty table")
	}
}
