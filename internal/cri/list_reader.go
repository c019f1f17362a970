package cri

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// MaxEntries is the maximum number of entries in one list. A list within the
// kubelet's 16 MiB limit has about 15,500 entries of the usual size.
const MaxEntries = 40_000

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
type listReader struct {
	decode func(raw []byte) (*Entry, error)
	labels protowire.Number // the first field that is a map

	mu      sync.Mutex
	last    []*Entry             // the last list that was read
	items   map[string]*listItem // of the last list, by id
	round   uint64               // counts the lists
	values  []*Entry             // of the list that is being read
	changed bool                 // an item of it was decoded
}

// listItem is an item with what identifies its encoding.
type listItem struct {
	value *Entry
	round uint64 // the last list that holds it
	hash  uint64 // of the bytes before the labels
	end   uint32 // the size of these bytes
	size  uint32
}

// newReader returns a reader of items that are encoded as an M.
func newReader[M any, P interface {
	*M
	proto.Message
}](labels protowire.Number, of func(P) *Entry) *listReader {
	return &listReader{labels: labels, items: map[string]*listItem{}, decode: func(raw []byte) (*Entry, error) {
		m := P(new(M))
		if err := proto.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("read an item of a list: %w", err)
		}
		return of(m), nil
	}}
}

func (r *listReader) lastList() []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// read returns the items of a list, immutable. After an error it remembers no item.
func (r *listReader) read(data mem.BufferSlice) ([]*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	r.changed, r.values = false, make([]*Entry, 0, len(r.last))
	in := data.Reader()
	defer func() { _ = in.Close() }()
	var raw []byte
	for in.Remaining() > 0 {
		var err error
		if raw, err = r.field(in, raw); err != nil {
			clear(r.items)
			return nil, err
		}
	}
	if r.changed || len(r.values) != len(r.last) { // else each item is one of the last list's, and none is there twice
		maps.DeleteFunc(r.items, func(_ string, it *listItem) bool { return it.round != r.round })
		r.last = r.values
	}
	return r.last, nil
}

// field reads one field of an answer into buf, which it returns. Items have the number 1. A
// field without a length is an error: no list of runtime.v1 has one.
func (r *listReader) field(in *mem.Reader, buf []byte) ([]byte, error) {
	tag, err := binary.ReadUvarint(in)
	num, typ := protowire.DecodeTag(tag)
	if err != nil || !num.IsValid() || typ != protowire.BytesType {
		return nil, errWire
	}
	size, err := binary.ReadUvarint(in)
	if err != nil || size > uint64(in.Remaining()) {
		return nil, errWire
	}
	buf = slices.Grow(buf[:0], int(size))[:size]
	if _, err := io.ReadFull(in, buf); err != nil || num != 1 {
		return buf, err
	}
	return buf, r.item(buf)
}

// item adds an item to the list. The second one with an id is decoded.
func (r *listReader) item(raw []byte) error {
	if len(r.values) == MaxEntries {
		return errTooMany
	}
	id := idOf(raw)
	it := r.items[string(id)]
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
	if end := r.prefix(raw); end > 0 && len(id) > 0 && len(id) <= maxName {
		r.items[string(id)] = &listItem{
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

// prefix returns the size of the fields before the labels. It is 0 if the fields are not
// in the order of their numbers, or one before the labels occurs twice.
func (r *listReader) prefix(raw []byte) (end int) {
	last := protowire.Number(0)
	for at := 0; at < len(raw); {
		num, _, n := protowire.ConsumeField(raw[at:])
		if n < 0 || num < last || num == last && num < r.labels {
			return 0
		}
		if last = num; num < r.labels {
			end = at + n
		}
		at += n
	}
	return end
}
