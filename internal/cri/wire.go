package cri

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels that the kubelet sets on every container
// (k8s.io/kubelet/pkg/types/labels.go).
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

// The numbers of api.proto that the wire reader needs. Runtimes write fields in
// the order of their numbers, so everything before the first map is stable
// from one answer to the next, while maps come in random order.
const (
	fieldListItems = 1 // ListPodSandboxResponse.items, ListContainersResponse.containers
	fieldID        = 1 // PodSandbox.id, Container.id

	sandboxLabels, sandboxAnnotations, sandboxRuntimeHandler = 5, 6, 7
	containerLabels, containerAnnotations, containerImageID  = 8, 9, 10
)

// listReader reads the items of one list answer. It remembers each item by id:
// an item known from an earlier answer whose fixed fields (those before the
// first map) are byte for byte what they were is the item that it was, and its
// labels and annotations, which CRI never changes for an id, are skipped. Any
// other item is read whole by the generated decoder.
//
// It is not safe for concurrent use.
type listReader[T any] struct {
	// maps and text are the fields that may stand behind the fixed ones, as
	// sets of bits by number: labels and annotations, and plain text.
	maps, text uint16
	// whole reads an item whole, for a slot.
	whole func(raw []byte, slot int) (*T, error)

	known map[string]*item[T]
	peak  int // the most that known has held since it was made
	out   []*T
	gen   uint64
	free  []int // slots that no item has
	slots int   // slots in all
}

type item[T any] struct {
	fixed []byte // the encoded fields before the first map
	value *T
	slot  int
	gen   uint64
}

// shrinkFrom is the size from which a map of known items that has become mostly
// empty is made anew: Go's maps do not give memory back.
const shrinkFrom = 1024

func bits(numbers ...int) uint16 {
	var set uint16
	for _, n := range numbers {
		set |= 1 << n
	}
	return set
}

func newSandboxReader() *listReader[Sandbox] {
	return &listReader[Sandbox]{
		maps: bits(sandboxLabels, sandboxAnnotations), text: bits(sandboxRuntimeHandler),
		whole: wholeSandbox, known: map[string]*item[Sandbox]{},
	}
}

func newContainerReader() *listReader[Container] {
	return &listReader[Container]{
		maps: bits(containerLabels, containerAnnotations), text: bits(containerImageID),
		whole: wholeContainer, known: map[string]*item[Container]{},
	}
}

var errWire = errors.New("the answer is no valid protobuf message")

// read returns the items of the list in b, in their order. The slice is valid
// until the next read; the values it points to are immutable and stay. After an
// error nothing of b has been taken over but items that were read whole.
func (r *listReader[T]) read(b []byte) ([]*T, error) {
	r.gen++
	r.out = r.out[:0]
	distinct := 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber { // ConsumeTag lets larger ones pass
			return nil, errWire
		}
		b = b[n:]
		if num != fieldListItems || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, errWire
			}
			b = b[n:]
			continue
		}
		raw, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, errWire
		}
		b = b[n:]
		it, err := r.item(raw)
		if err != nil {
			return nil, err
		}
		if it.gen != r.gen {
			it.gen = r.gen
			distinct++
		}
		r.out = append(r.out, it.value)
	}
	if distinct < len(r.known) {
		r.forget()
	}
	return r.out, nil
}

// forget drops the items that the list just read did not hold.
func (r *listReader[T]) forget() {
	r.peak = max(r.peak, len(r.known))
	for id, it := range r.known {
		if it.gen != r.gen {
			delete(r.known, id)
			r.free = append(r.free, it.slot)
		}
	}
	if r.peak >= shrinkFrom && len(r.known) < r.peak/4 {
		smaller := make(map[string]*item[T], len(r.known))
		maps.Copy(smaller, r.known)
		r.known, r.peak = smaller, len(smaller)
		r.out = slices.Clip(slices.Clone(r.out))
		r.free = slices.Clip(r.free)
	}
}

// slot returns a slot that no item has.
func (r *listReader[T]) slot() int {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.slots++
	return r.slots - 1
}

// alone returns an item that is not remembered. Its slot is -1: nobody finds
// anything by it.
func (r *listReader[T]) alone(raw []byte) (*item[T], error) {
	v, err := r.whole(raw, -1)
	if err != nil {
		return nil, err
	}
	return &item[T]{value: v, slot: -1, gen: r.gen}, nil
}

// item returns the item that raw encodes.
func (r *listReader[T]) item(raw []byte) (*item[T], error) {
	id, ok := leadingID(raw)
	if !ok { // an order that no runtime uses: valid all the same
		return r.alone(raw)
	}
	it := r.known[string(id)]
	// Known means known from an earlier answer: a second item of the same id in
	// one answer is another item, with labels of its own.
	if it != nil && it.gen != r.gen && len(raw) >= len(it.fixed) && bytes.Equal(raw[:len(it.fixed)], it.fixed) {
		same, err := r.onlyMaps(raw[len(it.fixed):])
		if err != nil {
			return nil, err
		}
		if same {
			return it, nil
		}
	}
	fixed, ok := r.fixedPart(raw)
	if !ok {
		return r.alone(raw)
	}
	// A new record rather than a changed one: an item of the same list may
	// still stand for the old one. The slot goes with the id.
	fresh := &item[T]{fixed: bytes.Clone(fixed)}
	if it != nil {
		fresh.gen, fresh.slot = it.gen, it.slot
	} else {
		fresh.slot = r.slot()
	}
	v, err := r.whole(raw, fresh.slot)
	if err != nil {
		if it == nil {
			r.free = append(r.free, fresh.slot)
		}
		return nil, err
	}
	fresh.value = v
	r.known[string(id)] = fresh
	return fresh, nil
}

// leadingID returns the id when it is the first field, as runtimes write it,
// and not empty.
func leadingID(raw []byte) ([]byte, bool) {
	num, id, _, ok := textField(raw)
	return id, ok && num == fieldID && len(id) > 0
}

// textField returns the first field of b when it is length-delimited, of a
// number up to 15 and shorter than 16 KiB, as nearly all are. It does what
// protowire does for those, at a fraction of its cost.
func textField(b []byte) (num int, value, rest []byte, ok bool) {
	if len(b) < 2 || b[0]&0x87 != byte(protowire.BytesType) || b[0] < 1<<3 {
		return 0, nil, nil, false
	}
	size, at := int(b[1]), 2
	if size >= 0x80 {
		if len(b) < 3 || b[2] >= 0x80 {
			return 0, nil, nil, false
		}
		size, at = size&0x7f|int(b[2])<<7, 3
	}
	if size > len(b)-at {
		return 0, nil, nil, false
	}
	return int(b[0] >> 3), b[at : at+size], b[at+size:], true
}

func in(set uint16, num protowire.Number) bool { return num < 16 && set&(1<<num) != 0 }

// fixedPart returns what stands before the first map or trailing text; ok is
// false when fixed fields stand behind that too, so that a prefix would not
// tell all.
func (r *listReader[T]) fixedPart(raw []byte) (fixed []byte, ok bool) {
	for at := 0; at < len(raw); {
		num, typ, n := protowire.ConsumeTag(raw[at:])
		if n < 0 {
			return nil, false
		}
		if in(r.maps|r.text, num) {
			same, err := r.onlyMaps(raw[at:])
			return raw[:at], same && err == nil
		}
		m := protowire.ConsumeFieldValue(num, typ, raw[at+n:])
		if m < 0 {
			return nil, false
		}
		at += n + m
	}
	return raw, true
}

// onlyMaps tells whether b, the rest of an item behind its fixed fields, holds
// nothing but labels, annotations and trailing text.
func (r *listReader[T]) onlyMaps(b []byte) (bool, error) {
	for len(b) > 0 {
		num, v, rest, ok := textField(b)
		if !ok {
			n, typ, tag := protowire.ConsumeTag(b)
			if tag < 0 {
				return false, errWire
			}
			if typ != protowire.BytesType || n >= 16 {
				return false, nil
			}
			var size int
			if v, size = protowire.ConsumeBytes(b[tag:]); size < 0 {
				return false, errWire
			}
			num, rest = int(n), b[tag+size:]
		}
		switch {
		case r.maps&(1<<num) != 0:
		case r.text&(1<<num) != 0:
			if !utf8.Valid(v) {
				return false, errWire
			}
		default:
			return false, nil
		}
		b = rest
	}
	return true, nil
}

func wholeSandbox(raw []byte, slot int) (*Sandbox, error) {
	var p runtimeapi.PodSandbox
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a sandbox: %w", err)
	}
	m := p.GetMetadata()
	return &Sandbox{
		Slot:        slot,
		ID:          p.GetId(),
		HasMetadata: m != nil,
		PodUID:      m.GetUid(),
		Name:        m.GetName(),
		Namespace:   m.GetNamespace(),
		Attempt:     m.GetAttempt(),
		Ready:       p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   p.GetCreatedAt(),
	}, nil
}

func wholeContainer(raw []byte, slot int) (*Container, error) {
	var p runtimeapi.Container
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a container: %w", err)
	}
	m := p.GetMetadata()
	return &Container{
		Slot:         slot,
		ID:           p.GetId(),
		SandboxID:    p.GetPodSandboxId(),
		HasMetadata:  m != nil,
		Name:         m.GetName(),
		Attempt:      m.GetAttempt(),
		HasImage:     p.GetImage() != nil,
		PodUID:       p.GetLabels()[labelPodUID],
		PodName:      p.GetLabels()[labelPodName],
		PodNamespace: p.GetLabels()[labelPodNamespace],
		State:        stateOf(p.GetState()),
		CreatedAt:    p.GetCreatedAt(),
	}, nil
}

// stateOf maps a state as the kubelet does: a number it does not know is
// unknown.
func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return StateExited
	default:
		return StateUnknown
	}
}
