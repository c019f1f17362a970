package cri

import "iter"

// index finds the slot of an item by a hash. It is a table of its own and not a
// map of Go's because of find: hardly more than one load, which the caller makes
// for many items at once.
//
// A cell holds the upper half of a hash and a slot plus one; 0 is an empty
// cell. The lower half says where to look first; cells are probed one after
// the other, and at most half of them are in use. A cell whose slot has another
// hash by now stays until the table is made anew.
type index struct {
	cells []uint64
	used  int
}

// find returns the slot of the first item whose hash looks like this one, -1
// when there is none. It may be another item's: the caller compares.
func (x *index) find(hash uint64) int32 {
	if len(x.cells) == 0 {
		return -1
	}
	mask := len(x.cells) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		if c := x.cells[at]; c == 0 || c>>32 == hash>>32 {
			return int32(uint32(c)) - 1
		}
	}
}

// lookup returns the slot of the item of this hash that is the right one.
func (x *index) lookup(hash uint64, right func(slot int32) bool) (slot int32, ok bool) {
	if len(x.cells) == 0 {
		return -1, false
	}
	mask := len(x.cells) - 1
	for at := int(hash) & mask; x.cells[at] != 0; at = (at + 1) & mask {
		c := x.cells[at]
		if slot := int32(uint32(c)) - 1; c>>32 == hash>>32 && right(slot) {
			return slot, true
		}
	}
	return -1, false
}

// insert adds a slot that is not in the table. all are the slots in use, this
// one among them.
func (x *index) insert(hash uint64, slot int32, all iter.Seq2[int32, uint64]) {
	if 2*(x.used+1) > len(x.cells) {
		n := 0
		for range all {
			n++
		}
		x.rebuild(n, all)
		return
	}
	x.used++
	x.put(hash, slot)
}

// rebuild makes the table anew for the n slots that are in use.
func (x *index) rebuild(n int, all iter.Seq2[int32, uint64]) {
	size := 64
	for size < 4*n { // room to double
		size *= 2
	}
	if size == len(x.cells) {
		clear(x.cells)
	} else {
		x.cells = make([]uint64, size)
	}
	x.used = n
	for slot, hash := range all {
		x.put(hash, slot)
	}
}

func (x *index) put(hash uint64, slot int32) {
	mask := len(x.cells) - 1
	at := int(hash) & mask
	for x.cells[at] != 0 {
		at = (at + 1) & mask
	}
	x.cells[at] = hash>>32<<32 | uint64(uint32(slot+1))
}

// bitset has a bit for each slot: few enough to stay in the first-level cache,
// where a mark with each item would be one more access to memory.
type bitset []uint64

// clear empties a set of n bits.
func (b *bitset) clear(n int) {
	b.grow(n)
	clear(*b)
}

func (b *bitset) grow(n int) {
	for len(*b)*64 < n {
		*b = append(*b, 0)
	}
}

func (b bitset) has(slot int32) bool { return b[slot>>6]&(1<<(slot&63)) != 0 }

// add reports whether the slot was not in the set.
func (b bitset) add(slot int32) bool {
	w, bit := &b[slot>>6], uint64(1)<<(slot&63)
	fresh := *w&bit == 0
	*w |= bit
	return fresh
}
