package cri

import (
	"encoding/binary"
	"errors"
	"fmt"
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
// list. What that costs is not instructions but waiting for memory. So of the
// fixed fields a digest is kept and not the bytes: it is made of what has just
// been walked over, and all that 15,000 items are recognised by fits into the
// second-level cache, where their bytes would be 5 MB. Items are taken in
// batches, so that the processor looks for many of them at once. Nothing else
// of an item is touched: neither its value nor a map of Go's.
//
// It is not safe for concurrent use.
type listReader[T any] struct {
	fields shape
	// whole reads an item whole, for a slot.
	whole func(raw []byte, slot int) (*T, error)
	// id is an item's; texts is the length of all that it holds, in bytes.
	id    func(*T) string
	texts func(*T) int

	// What is known: marks, values and listed have an element (listed a bit) for
	// each slot; seen finds the slot of a digest, ids that of an id's hash.
	marks  []mark
	values []*T   // nil: a free slot
	listed bitset // in the answer being read
	seen   index
	ids    index
	free   []int32 // slots that no item has
	known  int     // slots that an item has
	seed   maphash.Seed

	src   source
	batch []sight
	out   []*T

	changes  Changes[T]
	parts    bool    // the answer being read comes in parts
	added    []int32 // slots of its items that were not known before
	distinct int     // items of it that are remembered
	odd      bool    // it holds items that are not
	held     int     // bytes of text of all that is remembered
	fresh    int     // bytes of text of what this answer brought
	loose    int     // those of them that are not remembered
	last     uint64  // the last list's number, 0 if it was odd or read in part
	before   uint64  // what last was when the answer began
}

// mark is what a known item is recognised by.
type mark struct {
	// digest is a hash of the fixed fields, with a random seed of this process.
	// That a change goes unseen because both encodings have the same 64 bits
	// happens, at a thousand changes a second, once in 500 million years.
	digest uint64
	// head are 8 bytes of the id, so that this is true beside 15,000 other items.
	head uint64
}

// sight is an item of the answer being read.
type sight struct {
	raw []byte
	mark
	fixed int32 // the length of the fixed fields; notPlain when they are not all in front
	slot  int32 // where it may be known
}

// batchSize keeps what a batch touches in the first-level cache.
const batchSize = 24

// MaxEntries is the most entries of one list that are read. The kubelet's 16 MiB
// hold about 15,500 entries of the usual size, and fewer than 40,000 that have
// what the kubelet puts into each; but a million that have nothing but an id,
// and these would be plegd's memory a hundredfold.
const MaxEntries = 40_000

// maxTexts is the most text of one list that is kept, in bytes: 40,000 entries
// with 300 each, where an ordinary container has 250. With ids and names as long
// as they are kept, a streamed list would else be four times as much; and two
// lists, each beside the one before it, are held at once.
const maxTexts = 12_000_000

// shrinkFrom is the number of items from which tables that have become mostly
// empty are made anew.
const shrinkFrom = 1024

func newSandboxReader() *listReader[Sandbox] {
	return newReader(wholeSandbox, func(s *Sandbox) string { return s.ID }, (*Sandbox).texts, newShape(bits(sandboxLabels, sandboxAnnotations), bits(sandboxRuntimeHandler)))
}

func newContainerReader() *listReader[Container] {
	return newReader(wholeContainer, func(c *Container) string { return c.ID }, (*Container).texts, newShape(bits(containerLabels, containerAnnotations), bits(containerImageID)))
}

func newReader[T any](whole func([]byte, int) (*T, error), id func(*T) string, texts func(*T) int, fields shape) *listReader[T] {
	return &listReader[T]{fields: fields, whole: whole, id: id, texts: texts, seed: maphash.MakeSeed(), batch: make([]sight, 0, batchSize)}
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
	// Refused is set when the list was streamed because the call that the
	// kubelet makes is refused for the size of its answer: with what limit, and
	// how many bytes it would be now. The kubelet cannot list then.
	Refused *Error
}

// lastList is the number of the last list that any reader has read.
var lastList atomic.Uint64

var (
	errWire     = errors.New("the answer is no valid protobuf message")
	errRepeated = errors.New("the streamed list holds an item twice")
	errTooMany  = fmt.Errorf("the list holds more than %d entries: plegd reads no more of it", MaxEntries)
	errTooMuch  = fmt.Errorf("the ids and names in the list are longer than %d bytes together: plegd reads no more of it", maxTexts)
)

// read returns the items of the list in data, in their order. The slice is
// valid until the next read; the values it points to are immutable and stay.
// After an error nothing of data has been taken over but items that were read
// whole; and not these either once there are very many: a runtime whose lists
// are broken each time could else fill the memory with what is in none of them.
func (r *listReader[T]) read(data mem.BufferSlice) ([]*T, error) {
	r.begin(false)
	if err := r.part(data); err != nil {
		if len(r.values) >= MaxEntries || r.held > maxTexts {
			r.reset()
		}
		return nil, err
	}
	return r.end()
}

// begin begins an answer, which comes in one part or in several. In a list of
// several parts no item may come twice (api.proto, StreamContainers).
func (r *listReader[T]) begin(parts bool) {
	r.parts = parts
	r.out = r.out[:0]
	r.added = r.added[:0]
	r.listed.clear(len(r.values))
	r.distinct, r.odd, r.fresh, r.loose = 0, false, 0, 0
	ch := &r.changes
	clear(ch.Changed) // nothing of an old list is held longer than that list
	clear(ch.Removed)
	ch.Changed, ch.Removed = ch.Changed[:0], ch.Removed[:0]
	r.before = r.last
	r.last, ch.List, ch.Before, ch.Refused = 0, 0, 0, nil // should the end not be reached
}

// part reads a part of the answer.
func (r *listReader[T]) part(data mem.BufferSlice) error {
	r.src.start(data)
	err := r.items()
	r.src.end()
	return err
}

// end ends the answer. After an error nothing is remembered.
func (r *listReader[T]) end() ([]*T, error) {
	ch := &r.changes
	if r.distinct < r.known {
		r.forget()
	}
	if r.held+r.loose > maxTexts {
		r.reset()
		return nil, errTooMuch
	}
	ch.List = lastList.Add(1)
	if !r.odd {
		r.last, ch.Before = ch.List, r.before
	}
	return r.out, nil
}

// abort gives up an answer of several parts: what it held that was not known
// before is forgotten, or streams that fail again and again, with other items
// each time, would be remembered for ever.
func (r *listReader[T]) abort() {
	clear(r.out)
	clear(r.changes.Changed)
	r.out, r.changes.Changed = r.out[:0], r.changes.Changed[:0]
	if len(r.added) == 0 {
		return
	}
	for _, slot := range r.added {
		r.held -= r.texts(r.values[slot])
		r.values[slot] = nil
	}
	r.known -= len(r.added)
	r.added, r.free = r.added[:0], r.free[:0]
	used := 0
	for slot := len(r.values) - 1; slot >= 0; slot-- {
		if r.values[slot] == nil {
			r.free = append(r.free, int32(slot))
		} else {
			used = max(used, slot+1)
		}
	}
	if len(r.values) >= shrinkFrom && used < len(r.values)/4 {
		r.shrink(used)
	}
	r.seen.rebuild(r.known, r.byDigest)
	r.ids.rebuild(r.known, r.byID)
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
		_, fixed := r.fields.of(raw)
		s := sight{raw: raw, fixed: int32(fixed)}
		if fixed >= 0 {
			s.digest = maphash.Bytes(r.seed, raw[:fixed])
			if fixed >= 2+8 { // behind its tag and length
				s.head = binary.LittleEndian.Uint64(raw[2:])
			}
		}
		if len(r.out)+len(r.batch) == MaxEntries {
			r.done()
			r.reset()
			return errTooMany
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
		batch[i].slot = r.seen.find(batch[i].digest)
	}
	for i := range batch {
		s := &batch[i]
		if s.slot >= 0 && s.fixed > 0 && r.marks[s.slot] == s.mark && r.values[s.slot] != nil && r.listed.add(s.slot) {
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

// take reads an item whole, and remembers it.
func (r *listReader[T]) take(s *sight) (*T, error) {
	if s.fixed < 0 {
		return r.alone(s.raw)
	}
	id, _ := r.fields.of(s.raw)
	hash := maphash.Bytes(r.seed, id)
	slot, known := r.ids.lookup(hash, func(slot int32) bool { return r.id(r.values[slot]) == string(id) })
	if known && r.listed.has(slot) {
		if r.parts {
			return nil, errRepeated
		}
		// A second item of the same id in one answer is another item, with
		// labels of its own, and takes the first one's place. In the list both
		// stay.
		r.odd = true
	}
	if !known {
		slot = r.slot()
	}
	v, err := r.whole(s.raw, int(slot))
	if err != nil || r.id(v) != string(id) {
		if !known {
			r.free = append(r.free, slot)
		}
		if err != nil {
			return nil, err
		}
		return r.alone(s.raw) // a second id, of which no runtime knows
	}
	if known {
		r.held -= r.texts(r.values[slot])
	}
	r.held += r.texts(v)
	r.marks[slot], r.values[slot] = s.mark, v
	r.seen.insert(s.digest, slot, r.byDigest)
	if !known {
		r.known++
		r.ids.insert(hash, slot, r.byID)
		r.added = append(r.added, slot)
	}
	if r.listed.add(slot) {
		r.distinct++
	}
	r.changes.Changed = append(r.changes.Changed, v)
	if r.fresh += r.texts(v); r.fresh > maxTexts {
		return nil, errTooMuch
	}
	return v, nil
}

// alone reads an item that is not remembered. Its slot is -1: nobody finds
// anything by it.
func (r *listReader[T]) alone(raw []byte) (*T, error) {
	r.odd = true
	v, err := r.whole(raw, -1)
	if err != nil {
		return nil, err
	}
	n := r.texts(v)
	r.loose += n
	if r.fresh += n; r.fresh > maxTexts {
		return nil, errTooMuch
	}
	return v, nil
}

// slot returns a slot that no item has.
func (r *listReader[T]) slot() int32 {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.marks = append(r.marks, mark{})
	r.values = append(r.values, nil)
	r.listed.grow(len(r.values))
	return int32(len(r.values) - 1)
}

// reset forgets everything.
func (r *listReader[T]) reset() {
	r.marks, r.values, r.listed, r.seen, r.ids, r.free, r.out = nil, nil, nil, index{}, index{}, nil, nil
	r.held, r.known, r.distinct, r.changes.Changed, r.changes.Removed, r.added = 0, 0, 0, nil, nil, nil
}

// forget drops the items that the list just read did not hold.
func (r *listReader[T]) forget() {
	r.free = r.free[:0]
	used := 0 // slots up to the last one in use
	for slot := len(r.values) - 1; slot >= 0; slot-- {
		if r.listed.has(int32(slot)) {
			used = max(used, slot+1)
			continue
		}
		if r.values[slot] != nil {
			r.changes.Removed = append(r.changes.Removed, r.values[slot])
			r.held -= r.texts(r.values[slot])
			r.values[slot] = nil
		}
		r.free = append(r.free, int32(slot)) // the lowest is used first
	}
	if len(r.values) >= shrinkFrom && used < len(r.values)/4 {
		r.shrink(used)
	}
	r.known = r.distinct
	r.seen.rebuild(r.known, r.byDigest)
	r.ids.rebuild(r.known, r.byID)
}

// byDigest and byID are the slots of what is known, with their hashes.
func (r *listReader[T]) byDigest(yield func(slot int32, hash uint64) bool) {
	for slot, v := range r.values {
		if v != nil && !yield(int32(slot), r.marks[slot].digest) {
			return
		}
	}
}

func (r *listReader[T]) byID(yield func(slot int32, hash uint64) bool) {
	for slot, v := range r.values {
		if v != nil && !yield(int32(slot), maphash.String(r.seed, r.id(v))) {
			return
		}
	}
}

// shrink gives back the memory of the slots from n on, none of which is used.
func (r *listReader[T]) shrink(n int) {
	r.marks, r.values = slices.Clone(r.marks[:n]), slices.Clone(r.values[:n])
	r.free = slices.Clone(slices.DeleteFunc(r.free, func(slot int32) bool { return int(slot) >= n }))
	r.out = slices.Clone(r.out)
	r.changes.Changed = slices.Clone(r.changes.Changed)
}
