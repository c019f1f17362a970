package cri

import (
	"slices"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listKind is one of the two lists, as the tests of the wire reader see it.
type listKind[T any] struct {
	reader func() *listReader[T]
	// list and item decode with the generated decoder.
	list func([]byte) ([]T, error)
	item func([]byte) (T, error)
	// relabel gives v what old has from its labels.
	relabel    func(v, old T) T
	maps, text []protowire.Number
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
		relabel: func(v, _ Sandbox) Sandbox { return v },
		maps:    []protowire.Number{5, 6},
		text:    []protowire.Number{7},
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
		relabel: func(v, old Container) Container {
			v.PodUID, v.PodName, v.PodNamespace = old.PodUID, old.PodName, old.PodNamespace
			return v
		},
		maps: []protowire.Number{8, 9},
		text: []protowire.Number{10},
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

// rememberer is the generated decoder with the one rule on top: labels and
// annotations of an item whose id is known from an earlier answer, and whose
// other fields stand before them as they stood there, are as they were.
type rememberer[T any] struct {
	kind  listKind[T]
	known map[string]remembered[T]
}

type remembered[T any] struct {
	fixed string
	value T
	now   bool // it is in the answer being read
}

func newRememberer[T any](k listKind[T]) *rememberer[T] {
	return &rememberer[T]{kind: k, known: map[string]remembered[T]{}}
}

func (r *rememberer[T]) read(b []byte) ([]T, error) {
	for id, k := range r.known {
		k.now = false
		r.known[id] = k
	}
	top, broken := fieldsOf(b)
	var out []T
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
	for id, k := range r.known {
		if !k.now {
			delete(r.known, id)
		}
	}
	return out, nil
}

func (r *rememberer[T]) item(raw []byte) (T, error) {
	fields, broken := fieldsOf(raw)
	at := slices.IndexFunc(fields, r.behind)
	if at < 0 {
		at = len(fields)
	}
	ordered := len(broken) == 0
	var fixed, trailing strings.Builder
	for _, f := range fields[:at] {
		fixed.Write(f.raw)
	}
	for _, f := range fields[at:] {
		ordered = ordered && r.behind(f) && f.typ == protowire.BytesType
		if slices.Contains(r.kind.text, f.num) {
			trailing.Write(f.raw)
		}
	}
	id := ""
	if len(fields) > 0 && fields[0].num == 1 && fields[0].typ == protowire.BytesType {
		id = string(fields[0].value)
	}
	old, known := r.known[id]
	if ordered && known && !old.now && old.fixed == fixed.String() {
		v, err := r.kind.item([]byte(fixed.String() + trailing.String()))
		if err == nil {
			v = r.kind.relabel(v, old.value)
			r.known[id] = remembered[T]{fixed: fixed.String(), value: v, now: true}
		}
		return v, err
	}
	v, err := r.kind.item(raw)
	for _, f := range fields { // with two different ids it is not remembered
		ordered = ordered && (f.num != 1 || f.typ != protowire.BytesType || string(f.value) == id)
	}
	if err == nil && ordered && id != "" {
		r.known[id] = remembered[T]{fixed: fixed.String(), value: v, now: true}
	}
	return v, err
}

func (r *rememberer[T]) behind(f wireField) bool {
	return slices.Contains(r.kind.maps, f.num) || slices.Contains(r.kind.text, f.num)
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
