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

// MaxEntries is the maximum number of entries in one list. A list within the kubelet's 16 MiB
// limit has about 15,500 entries of the usual size. Two lists of so many, each with other ids
// than the last one, take plegd to its limit of 128 MiB (test/hostile, TestFatLists).
const MaxEntries = 16_384

var (
	errWire    = errors.New("invalid protobuf message")
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
	raw     []byte               // the item that is being read
	dropped []*Entry             // for takeDropped
}

// maxDropped bounds the entries that wait for takeDropped.
const maxDropped = 512

// maxKeptItem is the largest buffer for an item, in bytes, that is kept for the next one.
const maxKeptItem = 64 << 10

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
}](labels protowire.Number, entryOf func(P) *Entry) *listReader {
	return &listReader{labels: labels, items: map[string]*listItem{}, decode: func(raw []byte) (*Entry, error) {
		m := P(new(M))
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("read an item of a list: %w", err)
		}
		return entryOf(m), nil
	}}
}

// share replaces the texts that a container has in common with its sandbox by those of the
// sandbox, so that they are kept once.
func (r *listReader) share(container *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.items[container.SandboxID]
	if known == nil {
		return
	}
	sandbox := known.value
	container.SandboxID = sandbox.ID
	container.PodUID = kept(container.PodUID, sandbox.PodUID)
	container.PodName = kept(container.PodName, sandbox.PodName)
	container.PodNamespace = kept(container.PodNamespace, sandbox.PodNamespace)
}

// kept returns the known one of two equal texts, else the text: equal ones take memory once.
func kept(text, known string) string {
	if text == known {
		return known
	}
	return text
}

func (r *listReader) lastList() []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// takeDropped returns the entries, since the last call, that were running in one list and not in the next one.
func (r *listReader) takeDropped() []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.dropped
	r.dropped = nil
	return out
}

// read returns the items of a list, immutable. After an error it remembers no item.
func (r *listReader) read(data mem.BufferSlice) ([]*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	r.changed = false
	r.values = make([]*Entry, 0, len(r.last))
	wire := data.Reader()
	defer func() { _ = wire.Close() }()
	for wire.Remaining() > 0 {
		err := r.field(wire)
		if err != nil {
			clear(r.items)
			return nil, err
		}
	}
	if r.changed || len(r.values) != len(r.last) { // else the list is unchanged
		maps.DeleteFunc(r.items, func(_ string, it *listItem) bool {
			isGone := it.round != r.round
			if isGone && it.value.State == StateRunning && len(r.dropped) < maxDropped {
				r.dropped = append(r.dropped, it.value)
			}
			return isGone
		})
		r.last = r.values
	}
	r.values = nil
	return r.last, nil
}

// itemsField is the number of the items in both lists of runtime.v1.
const itemsField = 1

// field reads one field of an answer. A field that is no item is skipped, as protobuf
// prescribes: a later version of the API may add some.
func (r *listReader) field(wire *mem.Reader) error {
	num, typ, err := readTag(wire)
	if err != nil {
		return err
	}
	if num != itemsField || typ != protowire.BytesType {
		return skip(wire, num, typ)
	}
	size, err := readSize(wire)
	if err != nil {
		return err
	}
	r.raw = slices.Grow(r.raw[:0], size)[:size]
	if _, err := io.ReadFull(wire, r.raw); err != nil {
		return errWire
	}
	err = r.item(r.raw)
	if cap(r.raw) > maxKeptItem {
		r.raw = nil
	}
	return err
}

func readTag(wire *mem.Reader) (protowire.Number, protowire.Type, error) {
	tag, err := readVarint(wire)
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(tag)
	if !num.IsValid() {
		return 0, 0, errWire
	}
	return num, typ, nil
}

// readSize reads the length of a field, which is within the rest of the answer.
func readSize(wire *mem.Reader) (int, error) {
	size, err := readVarint(wire)
	if err != nil || size > uint64(wire.Remaining()) {
		return 0, errWire
	}
	return int(size), nil
}

func readVarint(wire *mem.Reader) (uint64, error) {
	v, err := binary.ReadUvarint(wire)
	if err != nil {
		return 0, errWire
	}
	return v, nil
}

// skip reads the value of a field and drops it.
func skip(wire *mem.Reader, num protowire.Number, typ protowire.Type) error {
	if typ == protowire.StartGroupType {
		return skipGroup(wire, num)
	}
	size := 0
	var err error
	switch typ {
	case protowire.VarintType:
		_, err = readVarint(wire)
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		size, err = readSize(wire)
	default:
		err = errWire
	}
	if err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, wire, int64(size)); err != nil {
		return errWire
	}
	return nil
}

// skipGroup reads the fields of a group up to its end, of groups in it too.
func skipGroup(wire *mem.Reader, outermost protowire.Number) error {
	open := []protowire.Number{outermost}
	for len(open) > 0 {
		num, typ, err := readTag(wire)
		switch {
		case err != nil:
		case typ == protowire.StartGroupType && len(open) < protowire.DefaultRecursionLimit:
			open = append(open, num)
		case typ == protowire.EndGroupType && num == open[len(open)-1]:
			open = open[:len(open)-1]
		case typ == protowire.StartGroupType, typ == protowire.EndGroupType:
			err = errWire
		default:
			err = skip(wire, num, typ)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
	r.values = append(r.values, value)
	r.changed = true
	if end := r.prefix(raw); end > 0 && len(id) > 0 && value.ID == string(id) { // whole, and kept once
		r.items[value.ID] = &listItem{
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
	for offset := 0; offset < len(raw); {
		num, _, n := protowire.ConsumeField(raw[offset:])
		if n < 0 || num < last || num == last && num < r.labels {
			return 0
		}
		last = num
		if num < r.labels {
			end = offset + n
		}
		offset += n
	}
	return end
}
