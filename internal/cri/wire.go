package cri

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// listReader reads the items of one list answer. It remembers each item by id:
// an item known from an earlier answer whose fixed fields (those before the
// first map) are byte for byte what they were is the item that it was, and its
// labels and annotations, which CRI never changes for an id, are skipped. Any
// other item is read whole by the generated decoder.
//
// Nearly every item is one that was there a second ago, in another place of the
// list. What that costs is not instructions but waiting for memory: the table
// of ids, the key, its 200 to 450 fixed bytes, each somewhere else. So items are
// taken in batches, and each of these steps is made for the whole batch before
// the next one: the processor then waits for many of them at once. Nothing else
// of an item is touched: neither its value nor a map of Go's.
//
// It is not safe for concurrent use.
type listReader[T any] struct {
	fields shape
	// whole reads an item whole, for a slot.
	whole func(raw []byte, slot int) (*T, error)

	// What is known: keys, values and listed have an element (listed a bit) for
	// each slot; index finds the slot of an id.
	keys   []key
	values []*T
	listed bitset // in the answer being read
	index  index
	free   []int32 // slots that no item has
	seed   maphash.Seed

	src   source
	batch []sight
	out   []*T

	changes  Changes[T]
	distinct int    // items of the answer being read that are remembered
	odd      bool   // it holds items that are not
	last     uint64 // the last list's number, 0 if it was odd or read in part
}

// key is what a known item is recognised by.
type key struct {
	hash  uint64 // of the id
	fixed []byte // the encoded fields before the first map; nil: a free slot
}

// sight is an item of the answer being read.
type sight struct {
	raw   []byte
	hash  uint64
	fixed int32 // the length of the fixed fields; notPlain when they are not all in front
	slot  int32 // where it may be known
}

// batchSize keeps what a batch touches, raw and remembered, in the first-level
// cache.
const batchSize = 24

// cacheLine is what one memory access brings along.
const cacheLine = 64

// shrinkFrom is the number of items from which tables that have become mostly
// empty are made anew.
const shrinkFrom = 1024

func newSandboxReader() *listReader[Sandbox] {
	return newReader(wholeSandbox, newShape(bits(sandboxLabels, sandboxAnnotations), bits(sandboxRuntimeHandler)))
}

func newContainerReader() *listReader[Container] {
	return newReader(wholeContainer, newShape(bits(containerLabels, containerAnnotations), bits(containerImageID)))
}

func newReader[T any](whole func([]byte, int) (*T, error), fields shape) *listReader[T] {
	return &listReader[T]{fields: fields, whole: whole, seed: maphash.MakeSeed(), batch: make([]sight, 0, batchSize)}
}

// Changes is the difference between a list and one before it.
type Changes[T any] struct {
	// List is the list's number, which no other list of the process has, and
	// Before that of the list that it differs from: the last that was read.
	// Before is 0 when only the whole list can tell: there was none before it,
	// or one of the two holds items that are not remembered (two of one id, or
	// fields in an order that no runtime uses).
	List, Before uint64
	// Changed are the values that the list before did not hold, in the list's
	// order; Removed those of ids that this list does not hold. Both are valid
	// until the next list.
	Changed, Removed []*T
}

// lastList is the number of the last list that any reader has read.
var lastList atomic.Uint64

var errWire = errors.New("the answer is no valid protobuf message")

// read returns the items of the list in data, in their order. The slice is
// valid until the next read; the values it points to are immutable and stay.
// After an error nothing of data has been taken over but items that were read
// whole.
func (r *listReader[T]) read(data mem.BufferSlice) ([]*T, error) {
	r.out = r.out[:0]
	r.listed.clear(len(r.keys))
	r.distinct, r.odd = 0, false
	ch := &r.changes
	clear(ch.Changed) // nothing of an old list is held longer than that list
	clear(ch.Removed)
	ch.Changed, ch.Removed = ch.Changed[:0], ch.Removed[:0]
	before := r.last
	r.last, ch.List, ch.Before = 0, 0, 0 // should the end not be reached

	r.src.start(data)
	err := r.items()
	r.src.end()
	if err != nil {
		return nil, err
	}
	if r.distinct < r.index.count {
		r.forget()
	}
	ch.List = lastList.Add(1)
	if !r.odd {
		r.last, ch.Before = ch.List, before
	}
	return r.out, nil
}

// items reads every item of the answer, batch by batch.
func (r *listReader[T]) items() error {
	for {
		raw, ok, err := r.src.next()
		if err != nil {
			return errors.Join(r.flush(), err)
		}
		if !ok {
			return r.flush()
		}
		id, fixed := r.fields.of(raw)
		s := sight{raw: raw, fixed: int32(fixed)}
		if fixed >= 0 {
			s.hash = maphash.Bytes(r.seed, id)
		}
		r.batch = append(r.batch, s)
		if len(r.batch) == batchSize {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
}

// flush finds what each item of the batch is.
func (r *listReader[T]) flush() error {
	batch := r.batch
	defer r.done()
	for i := range batch {
		batch[i].slot = r.index.find(batch[i].hash)
	}
	// Touch what the comparison below will read: each load stands alone, so
	// they overlap, where the comparisons would wait for one after another.
	var touched byte
	for i := range batch {
		if slot := batch[i].slot; slot >= 0 {
			fixed := r.keys[slot].fixed
			for at := 0; at < len(fixed); at += cacheLine {
				touched |= fixed[at]
			}
		}
	}
	sink = touched
	for i := range batch {
		s := &batch[i]
		if s.slot >= 0 && s.fixed > 0 && bytes.Equal(r.keys[s.slot].fixed, s.raw[:s.fixed]) && r.listed.add(s.slot) {
			r.distinct++
			r.out = append(r.out, r.values[s.slot])
			continue
		}
		v, err := r.take(s)
		if err != nil {
			return err
		}
		r.out = append(r.out, v)
	}
	return nil
}

// done lets go of a batch.
func (r *listReader[T]) done() {
	clear(r.batch)
	r.batch = r.batch[:0]
	r.src.release()
}

// sink keeps the compiler from leaving out the loads of flush.
var sink byte //nolint:unused // writing to it is its use

// take reads an item whole, and remembers it.
func (r *listReader[T]) take(s *sight) (*T, error) {
	if s.fixed < 0 {
		return r.alone(s.raw)
	}
	id, _ := r.fields.of(s.raw)
	slot, known := r.index.lookup(s.hash, func(slot int32) bool {
		other, _ := r.fields.of(r.keys[slot].fixed)
		return bytes.Equal(id, other)
	})
	fixed := s.raw[:s.fixed]
	if known && r.listed.has(slot) {
		// A second item of the same id in one answer is another item, with
		// labels of its own, and takes the first one's place. In the list both
		// stay.
		r.odd = true
	}
	if !known {
		slot = r.slot()
	}
	v, err := r.whole(s.raw, int(slot))
	if err != nil {
		if !known {
			r.free = append(r.free, slot)
		}
		return nil, err
	}
	r.keys[slot] = key{hash: s.hash, fixed: bytes.Clone(fixed)}
	r.values[slot] = v
	if !known {
		r.index.insert(r.keys, slot)
	}
	if r.listed.add(slot) {
		r.distinct++
	}
	r.changes.Changed = append(r.changes.Changed, v)
	return v, nil
}

// alone reads an item that is not remembered. Its slot is -1: nobody finds
// anything by it.
func (r *listReader[T]) alone(raw []byte) (*T, error) {
	r.odd = true
	return r.whole(raw, -1)
}

// slot returns a slot that no item has.
func (r *listReader[T]) slot() int32 {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.keys = append(r.keys, key{})
	r.values = append(r.values, nil)
	r.listed.grow(len(r.keys))
	return int32(len(r.keys) - 1)
}

// forget drops the items that the list just read did not hold.
func (r *listReader[T]) forget() {
	r.free = r.free[:0]
	used := 0 // slots up to the last one in use
	for slot := len(r.keys) - 1; slot >= 0; slot-- {
		if r.listed.has(int32(slot)) {
			used = max(used, slot+1)
			continue
		}
		if r.keys[slot].fixed != nil {
			r.changes.Removed = append(r.changes.Removed, r.values[slot])
			r.keys[slot], r.values[slot] = key{}, nil
		}
		r.free = append(r.free, int32(slot)) // the lowest is used first
	}
	if len(r.keys) >= shrinkFrom && used < len(r.keys)/4 {
		r.shrink(used)
	}
	r.index.rebuild(r.keys, r.distinct)
}

// shrink gives back the memory of the slots from n on, none of which is used.
func (r *listReader[T]) shrink(n int) {
	r.keys, r.values = slices.Clone(r.keys[:n]), slices.Clone(r.values[:n])
	r.free = slices.Clone(slices.DeleteFunc(r.free, func(slot int32) bool { return int(slot) >= n }))
	r.out = slices.Clone(r.out)
	r.changes.Changed = slices.Clone(r.changes.Changed)
}
