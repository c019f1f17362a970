package cri

import (
	"bytes"
	"errors"
	"fmt"
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
	// isMap and isText say which fields may stand behind the fixed ones.
	isMap, isText func(protowire.Number) bool
	whole         func([]byte) (*T, error)

	known map[string]*item[T]
	out   []*T
	gen   uint64
}

type item[T any] struct {
	fixed []byte // the encoded fields before the first map
	value *T
	gen   uint64
}

func newSandboxReader() *listReader[Sandbox] {
	return &listReader[Sandbox]{
		isMap:  func(n protowire.Number) bool { return n == sandboxLabels || n == sandboxAnnotations },
		isText: func(n protowire.Number) bool { return n == sandboxRuntimeHandler },
		whole:  wholeSandbox,
		known:  map[string]*item[Sandbox]{},
	}
}

func newContainerReader() *listReader[Container] {
	return &listReader[Container]{
		isMap:  func(n protowire.Number) bool { return n == containerLabels || n == containerAnnotations },
		isText: func(n protowire.Number) bool { return n == containerImageID },
		whole:  wholeContainer,
		known:  map[string]*item[Container]{},
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
		for id, it := range r.known {
			if it.gen != r.gen {
				delete(r.known, id)
			}
		}
	}
	return r.out, nil
}

// item returns the item that raw encodes.
func (r *listReader[T]) item(raw []byte) (*item[T], error) {
	id, ok := leadingID(raw)
	if !ok { // an order that no runtime uses: valid all the same
		v, err := r.whole(raw)
		if err != nil {
			return nil, err
		}
		return &item[T]{value: v, gen: r.gen}, nil
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
	v, err := r.whole(raw)
	if err != nil {
		return nil, err
	}
	fixed, ok := r.fixedPart(raw)
	if !ok {
		return &item[T]{value: v, gen: r.gen}, nil
	}
	// A new record rather than a changed one: an item of the same list may
	// still stand for the old one.
	old := it
	it = &item[T]{fixed: bytes.Clone(fixed), value: v}
	if old != nil {
		it.gen = old.gen
	}
	r.known[string(id)] = it
	return it, nil
}

// leadingID returns the id when it is the first field, as runtimes write it,
// and not empty.
func leadingID(raw []byte) ([]byte, bool) {
	num, typ, n := protowire.ConsumeTag(raw)
	if n < 0 || num != fieldID || typ != protowire.BytesType {
		return nil, false
	}
	id, m := protowire.ConsumeBytes(raw[n:])
	return id, m > 0 && len(id) > 0
}

// fixedPart returns what stands before the first map or trailing text; ok is
// false when fixed fields stand behind that too, so that a prefix would not
// tell all.
func (r *listReader[T]) fixedPart(raw []byte) (fixed []byte, ok bool) {
	for at := 0; at < len(raw); {
		num, typ, n := protowire.ConsumeTag(raw[at:])
		if n < 0 {
			return nil, false
		}
		if r.isMap(num) || r.isText(num) {
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
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false, errWire
		}
		b = b[n:]
		if typ != protowire.BytesType {
			return false, nil
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return false, errWire
		}
		switch {
		case r.isMap(num):
		case r.isText(num):
			if !utf8.Valid(v) {
				return false, errWire
			}
		default:
			return false, nil
		}
		b = b[n:]
	}
	return true, nil
}

func wholeSandbox(raw []byte) (*Sandbox, error) {
	var p runtimeapi.PodSandbox
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a sandbox: %w", err)
	}
	m := p.GetMetadata()
	return &Sandbox{
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

func wholeContainer(raw []byte) (*Container, error) {
	var p runtimeapi.Container
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a container: %w", err)
	}
	m := p.GetMetadata()
	return &Container{
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
