package cri

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// MaxEntries is the maximum number of entries in one list. A list within the
// kubelet's 16 MiB limit has about 15,500 entries of the usual size.
const MaxEntries = 40_000

// maxPartial is the size in bytes of an incomplete field from which the rest of the
// answer is collected before it is parsed again.
const maxPartial = 1 << 20

var (
	errWire    = errors.New("the answer is no valid protobuf message")
	errTooMany = fmt.Errorf("the list holds more than %d entries, the maximum that plegd reads", MaxEntries)
)

// listReader decodes list answers. It decodes only items whose bytes changed
// since the last list; an unchanged item keeps its value and its pointer, and an
// unchanged list is the last slice.
//
// Runtimes encode fields in the order of their numbers, and lists and maps in random
// order. So items are compared by their size and by a hash of the bytes before their
// labels, the first map: id, metadata, image, state and creation time. CRI
// changes neither labels nor annotations of an id.
//
// A listReader is safe for concurrent use.
type listReader[T any] struct {
	decode func(raw []byte) (*T, error)
	labels protowire.Number // the first field that is a map

	// last is the last list that was read; nil before the first.
	last atomic.Pointer[[]*T]

	mu      sync.Mutex
	items   map[string]*listItem[T] // of the last list, by id
	round   uint64                  // counts the lists
	values  []*T                    // of the list that is being read
	changed bool                    // an item of it was decoded
}

// listItem is an item with what identifies its encoding.
type listItem[T any] struct {
	value *T
	round uint64 // the last list that holds it
	hash  uint64 // of the bytes before the labels
	end   uint32 // the size of these bytes
	size  uint32
}

// newReader returns a reader of items that are encoded as an M.
func newReader[T, M any, P interface {
	*M
	proto.Message
}](labels protowire.Number, of func(P) *T) *listReader[T] {
	return &listReader[T]{labels: labels, items: map[string]*listItem[T]{}, decode: func(raw []byte) (*T, error) {
		m := P(new(M))
		if err := proto.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("read an item of a list: %w", err)
		}
		return of(m), nil
	}}
}

func (r *listReader[T]) lastList() []*T {
	if last := r.last.Load(); last != nil {
		return *last
	}
	return nil
}

// read returns the items of a list. The values and the slice are immutable. After an
// error it remembers no item.
func (r *listReader[T]) read(data mem.BufferSlice) ([]*T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.lastList()
	r.round++
	r.changed, r.values = false, make([]*T, 0, len(last))
	if err := r.pieces(data); err != nil {
		clear(r.items)
		return nil, err
	}
	if !r.changed && len(r.values) == len(last) {
		return last, nil // each item is one of the last list's, and none is there twice
	}
	maps.DeleteFunc(r.items, func(_ string, it *listItem[T]) bool { return it.round != r.round })
	values := r.values
	r.last.Store(&values)
	return values, nil
}

// pieces reads an answer piece by piece: the whole in one piece would need a second
// buffer of its size.
func (r *listReader[T]) pieces(data mem.BufferSlice) error {
	var buf []byte
	for i, piece := range data {
		buf = append(buf, piece.ReadOnlyData()...)
		if len(buf) > maxPartial && i < len(data)-1 {
			continue
		}
		n, err := r.fields(buf)
		if err != nil {
			return err
		}
		buf = buf[:copy(buf, buf[n:])]
	}
	if len(buf) > 0 {
		return errWire
	}
	return nil
}

// fields reads the complete fields at the start of b, and returns their size.
func (r *listReader[T]) fields(b []byte) (size int, err error) {
	for size < len(b) {
		num, typ, n := protowire.ConsumeTag(b[size:])
		m := 0
		if n >= 0 {
			m = protowire.ConsumeFieldValue(num, typ, b[size+n:])
		}
		switch err := protowire.ParseError(min(n, m)); {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil || !num.IsValid():
			return 0, errWire
		case num == 1 && typ == protowire.BytesType: // items, containers
			raw, _ := protowire.ConsumeBytes(b[size+n:])
			if err := r.item(raw); err != nil {
				return 0, err
			}
		}
		size += n + m
	}
	return size, nil
}

// item adds an item to the list. The second one with an id is decoded.
func (r *listReader[T]) item(raw []byte) error {
	if len(r.values) == MaxEntries {
		return errTooMany
	}
	it := r.items[string(idOf(raw))]
	if it != nil && it.round != r.round && len(raw) == int(it.size) && hash(raw[:it.end]) == it.hash {
		it.round = r.round
		r.values = append(r.values, it.value)
		return nil
	}
	value, err := r.decode(raw)
	if err != nil {
		return err
	}
	r.values, r.changed = append(r.values, value), true
	if end, ok := r.prefix(raw); ok {
		r.items[string(idOf(raw))] = &listItem[T]{
			value: value, round: r.round, hash: hash(raw[:end]), end: uint32(end), size: uint32(len(raw)),
		}
	}
	return nil
}

var hashSeed = maphash.MakeSeed()

func hash(b []byte) uint64 { return maphash.Bytes(hashSeed, b) }

// idOf returns the id of an item, nil if its encoding does not begin with one.
func idOf(raw []byte) []byte {
	if num, typ, n := protowire.ConsumeTag(raw); num == 1 && typ == protowire.BytesType {
		id, _ := protowire.ConsumeBytes(raw[n:])
		return id
	}
	return nil
}

// prefix returns the end of the bytes before the labels. It is not ok if the item has no
// id of a usual length, or its fields are not in the order of their numbers, or one before the labels
// occurs twice.
func (r *listReader[T]) prefix(raw []byte) (end int, ok bool) {
	end, last := len(raw), protowire.Number(0)
	for at := 0; at < len(raw); {
		num, _, n := protowire.ConsumeField(raw[at:])
		if n < 0 || num < last || num == last && num < r.labels {
			return 0, false
		}
		if num >= r.labels {
			end = min(end, at)
		}
		last = num
		at += n
	}
	id := len(idOf(raw))
	return end, id > 0 && id <= maxName
}
