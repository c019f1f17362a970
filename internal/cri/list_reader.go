package cri

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// listReader decodes the items of list answers and remembers them by id, so that
// an item that did not change since the last list is not decoded again.
//
// CRI changes nothing of an id but its state. So an item is unchanged if its id,
// its state and its creation time are those that were decoded last, and its
// encoding has the same length. Any other item is decoded by the generated decoder.
//
// Runtimes encode fields in the order of their numbers. State and creation time
// stand beside each other, behind the id, metadata and image and before the labels
// and annotations, which are maps and encoded in random order. They are compared as
// they are encoded, at the place where they were found last.
//
// A listReader is not safe for concurrent use.
type listReader[T any] struct {
	decode func(raw []byte) (*T, error)
	// texts returns all strings of a value, the id first, but those that it shares, and
	// how much memory these hold.
	texts  func(*T) (own []*string, shared int)
	state  protowire.Number // the state; the creation time follows
	labels protowire.Number // the first field that is a map

	items map[string]*item[T] // by id
	most  int                 // the most items since the map was made
	list  uint32              // number of the answer being read

	// Of the answer being read.
	out     []*T
	changes Changes[T]
	before  *ListID // the last list, nil if what changed since cannot be told
	parts   bool    // it comes in parts, and holds no id twice
	found   int     // items of it that are in the map
	odd     bool    // it holds an item that is not
	bytes   int     // memory for its texts

	in     mem.Reader
	pieces [][]byte // of the item being read
	joined []byte
}

// item is a remembered item. There are as many as the runtime has containers: its
// size counts.
type item[T any] struct {
	value T
	// state is the encoding of state and creation time with one byte more: the tag of
	// the map, or what else follows. It is empty if the item is to be decoded always.
	state string
	at    int32  // where it begins
	size  int32  // length of the whole encoding
	bytes int32  // memory for state and the texts, shared ones too
	list  uint32 // the last answer that held it
}

// is reports whether raw, which has the item's id, encodes the item.
func (it *item[T]) is(raw []byte) bool {
	return len(raw) == int(it.size) && it.state != "" && string(raw[it.at:int(it.at)+len(it.state)]) == it.state
}

// Changes is the difference between a list and the one before it.
type Changes[T any] struct {
	// List identifies the list, Before the list that it is compared with. Before is
	// nil if the changes are not known: the list is the first one, the list before
	// it could not be read, or one of the two holds an id twice.
	List, Before *ListID
	// Items are the new and changed items in the order of the list, and then the
	// removed ones. The slice is valid until the next list.
	Items []Change[T]
	// Refused is set if the list was streamed because the kubelet's call is refused
	// for the size of the answer: with what limit, and how large it would be.
	Refused *Error
}

// Change is a changed item. Old is nil for a new one, New for a removed one.
type Change[T any] struct{ Old, New *T }

// ListID identifies a list. No two lists have the same pointer.
type ListID struct{ _ byte }

const (
	// MaxEntries is the most entries of one list that are read. The kubelet's
	// 16 MiB hold about 15,500 entries of the usual size.
	MaxEntries = 40_000
	// maxListBytes is the most memory for the texts of one list. An ordinary
	// container counts as 230 bytes, two thirds of them its sandbox's.
	maxListBytes = 12_000_000
	// maxKept is the most that is kept of an item's encoding, maxJoined the buffer
	// that is kept for the next list.
	maxKept   = 8 << 10
	maxJoined = 256 << 10
	// maxHead is the length of the longest tag and size of a field.
	maxHead = 2 * binary.MaxVarintLen64
	// shrinkFrom is the size from which a map that is mostly empty is replaced.
	shrinkFrom = 1024
)

var (
	errWire     = errors.New("the answer is no valid protobuf message")
	errRepeated = errors.New("the streamed list holds an item twice")
	errTooMany  = fmt.Errorf("the list holds more than %d entries: plegd reads no more of it", MaxEntries)
	errTooMuch  = fmt.Errorf("the ids and names in the list are longer than %d bytes together: plegd reads no more of it", maxListBytes)
)

func newSandboxReader() *listReader[Sandbox] {
	texts := func(s *Sandbox) ([]*string, int) { return s.texts(), 0 }
	return &listReader[Sandbox]{decode: decodeSandbox, texts: texts, state: 3, labels: 5, items: map[string]*item[Sandbox]{}}
}

// newContainerReader returns a reader of containers, which share the texts of their
// sandboxes in the last list that sandboxes has read: two thirds of their own.
func newContainerReader(sandboxes *listReader[Sandbox]) *listReader[Container] {
	texts := func(c *Container) ([]*string, int) {
		if it := sandboxes.items[c.SandboxID]; it != nil {
			return c.texts(&it.value), int(it.bytes)
		}
		return c.texts(&Sandbox{}), 0
	}
	return &listReader[Container]{decode: decodeContainer, texts: texts, state: 6, labels: 8, items: map[string]*item[Container]{}}
}

// read returns the items of a list in their order. The slice is valid until the
// next list; the values are immutable. After an error nothing is remembered.
func (r *listReader[T]) read(data mem.BufferSlice) ([]*T, error) {
	r.begin(false)
	if err := r.part(data); err != nil {
		r.abort()
		return nil, err
	}
	return r.end(), nil
}

// begin begins a list that comes in one part or in several.
func (r *listReader[T]) begin(parts bool) {
	r.before = r.changes.List
	if r.odd {
		r.before = nil
	}
	clear(r.out)
	clear(r.changes.Items) // nothing of the last list stays in memory
	r.out, r.changes = r.out[:0], Changes[T]{Items: r.changes.Items[:0]}
	r.parts, r.found, r.odd, r.bytes = parts, 0, false, 0
	r.list++
}

// abort ends a list that could not be read. Nothing is remembered: a runtime
// whose lists break off each time could otherwise fill the memory.
func (r *listReader[T]) abort() {
	*r = listReader[T]{decode: r.decode, texts: r.texts, state: r.state, labels: r.labels, items: map[string]*item[T]{}}
}

// end ends a list and returns its items.
func (r *listReader[T]) end() []*T {
	if r.found < len(r.items) {
		r.forget()
	}
	if cap(r.joined) > maxJoined {
		r.joined = nil
	}
	r.changes.List = &ListID{}
	if !r.odd {
		r.changes.Before = r.before
	}
	return r.out
}

// forget removes the items that the list does not hold.
func (r *listReader[T]) forget() {
	r.most = max(r.most, len(r.items))
	for id, it := range r.items {
		if it.list != r.list {
			r.changes.Items = append(r.changes.Items, Change[T]{Old: &it.value})
			delete(r.items, id)
		}
	}
	if r.most < shrinkFrom || len(r.items) >= r.most/4 {
		return
	}
	small := make(map[string]*item[T], len(r.items))
	for id, it := range r.items {
		small[id] = it
	}
	r.items, r.most = small, 0
	r.out = append([]*T(nil), r.out...)
}

// part reads one part of a list.
func (r *listReader[T]) part(data mem.BufferSlice) error {
	in := &r.in
	in.Reset(data)
	defer func() { _ = in.Close() }() // it always returns nil
	for in.Remaining() > 0 {
		head := r.peek(min(maxHead, in.Remaining()))
		num, typ, n := protowire.ConsumeTag(head)
		if n < 0 || !num.IsValid() {
			return errWire
		}
		if typ != protowire.BytesType {
			_, _ = in.Discard(n)
			if err := r.skip(num, typ); err != nil {
				return err
			}
			continue
		}
		size, m := protowire.ConsumeVarint(head[n:])
		if m < 0 || size > uint64(in.Remaining()-n-m) {
			return errWire
		}
		_, _ = in.Discard(n + m)
		if num == 1 { // ListPodSandboxResponse.items, ListContainersResponse.containers
			if err := r.item(r.peek(int(size))); err != nil {
				return err
			}
		}
		_, _ = in.Discard(int(size)) // they are there
	}
	return nil
}

// peek returns the next n bytes, which are there, until the next call.
func (r *listReader[T]) peek(n int) []byte {
	r.pieces, _ = r.in.Peek(n, r.pieces[:0])
	if len(r.pieces) == 1 {
		return r.pieces[0]
	}
	r.joined = r.joined[:0]
	for _, p := range r.pieces {
		r.joined = append(r.joined, p...)
	}
	return r.joined
}

// skip skips a field of a type that no field of these messages has.
func (r *listReader[T]) skip(num protowire.Number, typ protowire.Type) error {
	rest := r.peek(r.in.Remaining())
	n := protowire.ConsumeFieldValue(num, typ, rest)
	if n < 0 {
		return errWire
	}
	if len(r.pieces) > 1 { // join them once, not for each such field
		r.in.Reset(mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), rest...))})
	}
	_, _ = r.in.Discard(n)
	return nil
}

// item adds an item to the list.
func (r *listReader[T]) item(raw []byte) error {
	if len(r.out) == MaxEntries {
		return errTooMany
	}
	id := idOf(raw)
	it := r.items[string(id)]
	again := it != nil && it.list == r.list
	if again && r.parts {
		return errRepeated
	}
	if it == nil || again || !it.is(raw) {
		old := it
		var got string
		var err error
		if it, got, err = r.newItem(raw); err != nil {
			return err
		}
		if again || got == "" || got != string(id) { // no id, two of them, or one that was cut
			r.odd, it.list = true, r.list
		} else {
			ch := Change[T]{New: &it.value}
			if old != nil {
				ch.Old = &old.value
			}
			r.changes.Items = append(r.changes.Items, ch)
			r.items[got] = it
		}
	}
	if it.list != r.list {
		it.list = r.list
		r.found++
	}
	if r.bytes += int(it.bytes); r.bytes > maxListBytes {
		return errTooMuch
	}
	r.out = append(r.out, &it.value)
	return nil
}

// idOf returns the id of an item, nil if its encoding does not begin with one.
func idOf(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != 1<<3|byte(protowire.BytesType) {
		return nil
	}
	id, _ := protowire.ConsumeBytes(raw[1:])
	return id
}

// newItem decodes an item and returns its id, too.
func (r *listReader[T]) newItem(raw []byte) (it *item[T], id string, err error) {
	v, err := r.decode(raw)
	if err != nil {
		return nil, "", err
	}
	state, at := r.stateOf(raw)
	own, shared := r.texts(v)
	text, n := together(state, own)
	id = *own[0]
	return &item[T]{value: *v, state: text, at: int32(at), size: int32(len(raw)), bytes: int32(n + shared)}, id, nil
}

// stateOf returns state and creation time of an item, one byte more, and where they
// begin. Where it has neither, or is in another order than that of the numbers, it
// returns all of it.
func (r *listReader[T]) stateOf(raw []byte) ([]byte, int) {
	from, to := len(raw), len(raw)
	last := protowire.Number(0)
	for at := 0; at < len(raw); {
		num, _, n := protowire.ConsumeField(raw[at:])
		if n < 0 || num < min(last, r.labels) {
			from = len(raw)
			break
		}
		if num >= r.state && from == len(raw) {
			from = at
		}
		if num >= r.labels && to == len(raw) {
			to = at + 1
		}
		last = num
		at += n
	}
	if from == len(raw) {
		from, to = 0, len(raw)
	}
	if to-from > maxKept {
		return nil, 0
	}
	return raw[from:to], from
}

// together puts an item's state and its texts into one string: for the garbage
// collector a list of 15,000 items is then 15,000 strings and not 80,000. It returns
// the state and the length of the string.
func together(state []byte, texts []*string) (string, int) {
	size := len(state)
	for _, t := range texts {
		size += len(*t)
	}
	var all strings.Builder
	all.Grow(size)
	all.Write(state)
	for _, t := range texts {
		all.WriteString(*t)
	}
	rest := all.String()[len(state):]
	for _, t := range texts {
		*t, rest = rest[:len(*t)], rest[len(*t):]
	}
	return all.String()[:len(state)], size
}
