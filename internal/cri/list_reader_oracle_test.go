package cri

import (
	"maps"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listKind is one of the two lists, as the tests of the list reader see it.
type listKind[T any] struct {
	reader func() *listReader[T]
	// list and item decode with the generated decoder.
	list func([]byte) ([]T, error)
	item func([]byte) (T, error)
	id   func(*T) string
	// state is the first field that can change, labels the first that is a map.
	state, labels protowire.Number
}

func sandboxKind() listKind[Sandbox] {
	return listKind[Sandbox]{
		reader: newSandboxReader,
		list: func(b []byte) ([]Sandbox, error) {
			var m runtimeapi.ListPodSandboxResponse
			if err := proto.Unmarshal(b, &m); err != nil {
				return nil, err
			}
			var out []Sandbox
			for _, p := range m.Items {
				out = append(out, plainSandbox(p))
			}
			return out, nil
		},
		item: func(b []byte) (Sandbox, error) {
			var p runtimeapi.PodSandbox
			err := proto.Unmarshal(b, &p)
			return plainSandbox(&p), err
		},
		id:     sandboxID,
		state:  3,
		labels: 5,
	}
}

func containerKind() listKind[Container] {
	return listKind[Container]{
		reader: func() *listReader[Container] { return newContainerReader(newSandboxReader()) },
		list: func(b []byte) ([]Container, error) {
			var m runtimeapi.ListContainersResponse
			if err := proto.Unmarshal(b, &m); err != nil {
				return nil, err
			}
			var out []Container
			for _, p := range m.Containers {
				out = append(out, plainContainer(p))
			}
			return out, nil
		},
		item: func(b []byte) (Container, error) {
			var p runtimeapi.Container
			err := proto.Unmarshal(b, &p)
			return plainContainer(&p), err
		},
		id:     containerID,
		state:  6,
		labels: 8,
	}
}

func plainSandbox(p *runtimeapi.PodSandbox) Sandbox {
	s := Sandbox{ID: p.Id, Ready: p.State == 0, CreatedAt: p.CreatedAt}
	if m := p.Metadata; m != nil {
		s.HasMetadata, s.PodUID, s.Name, s.Namespace, s.Attempt = true, m.Uid, m.Name, m.Namespace, m.Attempt
	}
	return s
}

func plainContainer(p *runtimeapi.Container) Container {
	c := Container{
		ID: p.Id, SandboxID: p.PodSandboxId, HasImage: p.Image != nil, CreatedAt: p.CreatedAt,
		PodUID:       p.Labels["io.kubernetes.pod.uid"],
		PodName:      p.Labels["io.kubernetes.pod.name"],
		PodNamespace: p.Labels["io.kubernetes.pod.namespace"],
		State:        StateUnknown,
	}
	if p.State >= 0 && p.State <= 2 {
		c.State = State(p.State)
	}
	if m := p.Metadata; m != nil {
		c.HasMetadata, c.Name, c.Attempt = true, m.Name, m.Attempt
	}
	return c
}

// rememberer is the generated decoder with the one rule on top: an item is as it
// was in the last list if its encoding begins with the same id, has the same bytes
// from its state up to the first byte of the field behind the creation time, and has
// the same length.
type rememberer[T any] struct {
	kind  listKind[T]
	known map[string]*remembered[T]
}

type remembered[T any] struct {
	state string
	from  int
	size  int
	value T
	now   bool // it is in the list being read
}

func newRememberer[T any](k listKind[T]) *rememberer[T] {
	return &rememberer[T]{kind: k, known: map[string]*remembered[T]{}}
}

func (r *rememberer[T]) read(b []byte) (out []T, err error) {
	defer func() {
		if err != nil {
			clear(r.known)
		}
	}()
	for _, k := range r.known {
		k.now = false
	}
	top, broken := fieldsOf(b)
	for _, f := range top {
		if f.num == 1 && f.typ == protowire.BytesType {
			v, err := r.item(f.value)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		} else if _, err := r.kind.list(f.raw); err != nil {
			return nil, err
		}
	}
	if _, err := r.kind.list(broken); err != nil {
		return nil, err
	}
	maps.DeleteFunc(r.known, func(_ string, k *remembered[T]) bool { return !k.now })
	return out, nil
}

func (r *rememberer[T]) item(raw []byte) (T, error) {
	fields, _ := fieldsOf(raw)
	id := ""
	if len(fields) > 0 && fields[0].num == 1 && fields[0].typ == protowire.BytesType {
		id = string(fields[0].value)
	}
	old := r.known[id]
	if old != nil && !old.now && len(raw) == old.size && strings.HasPrefix(string(raw[old.from:]), old.state) {
		old.now = true
		return old.value, nil
	}
	v, err := r.kind.item(raw)
	if err == nil && id != "" && id == r.kind.id(&v) && (old == nil || !old.now) {
		from, to := r.compared(fields, len(raw))
		r.known[id] = &remembered[T]{state: string(raw[from:to]), from: from, size: len(raw), value: v, now: true}
	}
	return v, err
}

// compared is the part of an encoding that is compared.
func (r *rememberer[T]) compared(fields []wireField, size int) (from, to int) {
	behind := false
	for i, f := range fields {
		if f.num < r.kind.labels && i > 0 && f.num < fields[i-1].num {
			return 0, size
		}
		switch {
		case f.num < r.kind.state:
			from += len(f.raw)
			to = from
		case f.num < r.kind.labels:
			to += len(f.raw)
		default:
			behind = true
		}
	}
	if from == size {
		return 0, size
	}
	if behind {
		to++
	}
	return from, to
}

// wireField is one encoded field, with its value if it has a length.
type wireField struct {
	num        protowire.Number
	typ        protowire.Type
	raw, value []byte
}

// fieldsOf splits a message into its fields. What cannot be split is returned
// as it is.
func fieldsOf(b []byte) (fields []wireField, broken []byte) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return fields, b
		}
		f := wireField{num: num, typ: typ, raw: b[:n]}
		if typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			f.value, _ = protowire.ConsumeBytes(b[tag:])
		}
		fields, b = append(fields, f), b[n:]
	}
	return fields, nil
}

// values copies what a reader returned.
func values[T any](items []*T) []T {
	var out []T
	for _, it := range items {
		out = append(out, *it)
	}
	return out
}

// read reads an answer that came in one piece.
func read[T any](r *listReader[T], b []byte) ([]*T, error) {
	return r.read(mem.BufferSlice{mem.SliceBuffer(b)})
}
