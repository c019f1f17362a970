package cri

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// MaxEntries is the maximum number of entries in one list. A list within the
// kubelet's 16 MiB limit has about 15,500 entries of the usual size.
const MaxEntries = 40_000

// maxPrefix is the maximum size in bytes of a prefix that is kept. Items with a
// longer one are decoded each time.
const maxPrefix = 8 << 10

var (
	errWire    = errors.New("the answer is no valid protobuf message")
	errTooMany = fmt.Errorf("the list holds more than %d entries: plegd reads no more of it", MaxEntries)
)

// listReader decodes list answers. It decodes only items whose bytes changed
// since the last list; an unchanged item keeps its value and its pointer.
//
// Runtimes encode fields in the order of their numbers, and maps in random
// order. So items are compared by their size and by the bytes before their
// labels, the first map: id, metadata, image, state and creation time. CRI
// changes neither labels nor annotations of an id.
//
// A listReader is safe for concurrent use.
type listReader[T any] struct {
	decode func(raw []byte) (*T, error)
	labels protowire.Number // the first field that is a map

	// last is the last list that was read; nil before the first.
	last atomic.Pointer[[]*T]

	mu    sync.Mutex
	items map[string]listItem[T] // of the last list, by id
	spare map[string]listItem[T] // cleared, for the next list
}

// listItem is an item with what identifies its encoding.
type listItem[T any] struct {
	value  *T
	id     string // empty if the item is to be decoded each time
	prefix []byte // up to the labels
	size   int
}

func newSandboxReader() *listReader[Sandbox] {
	return &listReader[Sandbox]{decode: decodeSandbox, labels: 5}
}

func newContainerReader() *listReader[Container] {
	return &listReader[Container]{decode: decodeContainer, labels: 8}
}

// read returns the items of a list in their order. The values are immutable.
// After an error it remembers no item.
func (r *listReader[T]) read(data mem.BufferSlice) ([]*T, error) {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, next := r.items, r.spare
	if next == nil {
		next = make(map[string]listItem[T], len(last))
	}
	r.items, r.spare = nil, nil
	out := make([]*T, 0, len(last))
	for rest := buf.ReadOnlyData(); len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 || !num.IsValid() {
			return nil, errWire
		}
		m := protowire.ConsumeFieldValue(num, typ, rest[n:])
		if m < 0 {
			return nil, errWire
		}
		field := rest[n : n+m]
		rest = rest[n+m:]
		if num != 1 || typ != protowire.BytesType { // items, containers
			continue
		}
		if len(out) == MaxEntries {
			return nil, errTooMany
		}
		raw, _ := protowire.ConsumeBytes(field)
		it, known := last[string(idOf(raw))]
		if !known || len(raw) != it.size || !bytes.HasPrefix(raw, it.prefix) {
			value, err := r.decode(raw)
			if err != nil {
				return nil, err
			}
			it = r.newItem(raw, value)
		}
		if it.id != "" {
			next[it.id] = it
		}
		out = append(out, it.value)
	}
	clear(last)
	r.items, r.spare = next, last
	r.last.Store(&out)
	return out, nil
}

// idOf returns the id of an item, nil if its encoding does not begin with one.
func idOf(raw []byte) []byte {
	if num, typ, n := protowire.ConsumeTag(raw); num == 1 && typ == protowire.BytesType {
		id, _ := protowire.ConsumeBytes(raw[n:])
		return id
	}
	return nil
}

// newItem returns the item of an encoding. Its id is empty if the fields are
// not in the order of their numbers, or one before the labels occurs twice.
func (r *listReader[T]) newItem(raw []byte, value *T) listItem[T] {
	it := listItem[T]{value: value, size: len(raw)}
	end, last := len(raw), protowire.Number(0)
	for at := 0; at < len(raw); {
		num, _, n := protowire.ConsumeField(raw[at:])
		if n < 0 || num < last || num == last && num < r.labels {
			return it
		}
		if num >= r.labels {
			end = min(end, at)
		}
		last = num
		at += n
	}
	if end <= maxPrefix {
		it.id, it.prefix = string(idOf(raw)), bytes.Clone(raw[:end])
	}
	return it
}
