package cri

import (
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
	list   func([]byte) ([]T, error)
	item   func([]byte) (T, error)
	id     func(*T) string
	labels protowire.Number // the first field that is a map
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
		labels: 5,
	}
}

func containerKind() listKind[Container] {
	return listKind[Container]{
		reader: newContainerReader,
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
		labels: 8,
	}
}

func plainSandbox(p *runtimeapi.PodSandbox) Sandbox {
	s := Sandbox{ID: p.Id, Ready: p.State == 0, CreatedAt: p.CreatedAt}
	if m := p.Metadata; m != nil {
		s.HasMetadata, s.PodUID, s.Name, s.Namespace = true, m.Uid, m.Name, m.Namespace
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
		c.HasMetadata, c.Name = true, m.Name
	}
	return c
}

// rememberer is the generated decoder with one rule on top: an item keeps its
// value while its size and its bytes up to the labels are those of the last list.
type rememberer[T any] struct {
	kind  listKind[T]
	known map[string]remembered[T]
}

type remembered[T any] struct {
	prefix string
	size   int
	value  T
}

func newRememberer[T any](k listKind[T]) *rememberer[T] { return &rememberer[T]{kind: k} }

func (r *rememberer[T]) read(b []byte) (out []T, err error) {
	last := r.known
	r.known = map[string]remembered[T]{}
	defer func() {
		if err != nil {
			r.known = nil
		}
	}()
	top, broken := fieldsOf(b)
	for _, f := range top {
		if f.num == 1 && f.typ == protowire.BytesType {
			v, err := r.item(f.value, last)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		} else if _, err := r.kind.list(f.raw); err != nil {
			return nil, err
		}
	}
	_, err = r.kind.list(broken)
	return out, err
}

func (r *rememberer[T]) item(raw []byte, last map[string]remembered[T]) (v T, err error) {
	fields, _ := fieldsOf(raw)
	id, prefix, stable := "", "", true
	for i, f := range fields {
		stable = stable && (i == 0 || f.num > fields[i-1].num || f.num == fields[i-1].num && f.num >= r.kind.labels)
		if f.num < r.kind.labels {
			prefix += string(f.raw)
		}
	}
	if len(fields) > 0 && fields[0].num == 1 && fields[0].typ == protowire.BytesType {
		id = string(fields[0].value)
	}
	old, known := last[id]
	if known && old.size == len(raw) && strings.HasPrefix(string(raw), old.prefix) {
		r.known[id] = old
		return old.value, nil
	}
	if v, err = r.kind.item(raw); err == nil && stable && id != "" {
		r.known[id] = remembered[T]{prefix, len(raw), v}
	}
	return v, err
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
