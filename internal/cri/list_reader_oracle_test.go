package cri

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/must"
)

// listKind is one of the two lists with its oracle, the generated decoder.
type listKind struct {
	reader func() *listReader
	decode func([]byte) ([]Entry, error)
	labels protowire.Number // the first field that is a map
}

func sandboxKind() listKind {
	return listKind{sandboxReader, func(b []byte) (out []Entry, err error) {
		var m runtimeapi.ListPodSandboxResponse
		err = proto.Unmarshal(b, &m)
		for _, p := range m.Items {
			out = append(out, plainSandbox(p))
		}
		return out, err
	}, 5}
}

func containerKind() listKind {
	return listKind{func() *listReader { return containerReader(sandboxReader()) }, func(b []byte) (out []Entry, err error) {
		var m runtimeapi.ListContainersResponse
		err = proto.Unmarshal(b, &m)
		for _, p := range m.Containers {
			out = append(out, plainContainer(p))
		}
		return out, err
	}, 8}
}

func plainSandbox(p *runtimeapi.PodSandbox) Entry {
	e := Entry{Sandbox: true, ID: p.Id, SandboxID: p.Id, State: StateExited, CreatedAt: p.CreatedAt, Ignored: p.Id == "" || p.Metadata == nil}
	if p.State == 0 {
		e.State = StateRunning
	}
	if m := p.Metadata; m != nil {
		e.PodUID, e.PodName, e.PodNamespace = m.Uid, m.Name, m.Namespace
	}
	return e
}

func plainContainer(p *runtimeapi.Container) Entry {
	e := Entry{
		ID: p.Id, SandboxID: p.PodSandboxId, CreatedAt: p.CreatedAt,
		Ignored:      p.Id == "" || p.Metadata == nil || p.Image == nil,
		PodUID:       p.Labels["io.kubernetes.pod.uid"],
		PodName:      p.Labels["io.kubernetes.pod.name"],
		PodNamespace: p.Labels["io.kubernetes.pod.namespace"],
		State:        StateUnknown,
	}
	if p.State >= 0 && p.State <= 2 {
		e.State = State(p.State)
	}
	if m := p.Metadata; m != nil {
		e.Name = m.Name
	}
	return e
}

// rememberer is the generated decoder with one rule on top: an item keeps its
// value while its size and its bytes up to the labels are those of the last list. The
// second one with an id is decoded.
type rememberer struct {
	kind  listKind
	known map[string]remembered
}

type remembered struct {
	prefix string
	size   int
	value  Entry
}

func (r *rememberer) read(b []byte) (out []Entry, err error) {
	last := r.known
	r.known = map[string]remembered{}
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
		} else if _, err := r.kind.decode(f.raw); err != nil {
			return nil, err
		}
	}
	_, err = r.kind.decode(broken)
	return out, err
}

func (r *rememberer) item(raw []byte, last map[string]remembered) (v Entry, err error) {
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
	if _, again := r.known[id]; known && !again && old.size == len(raw) && strings.HasPrefix(string(raw), old.prefix) {
		r.known[id] = old
		return old.value, nil
	}
	list, err := r.kind.decode(listOf(raw))
	if err != nil {
		return v, err
	}
	if stable && id != "" && len(id) <= maxName {
		r.known[id] = remembered{prefix, len(raw), list[0]}
	}
	return list[0], nil
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

// sameAsOracles compares a fresh reader with the generated decoder for each answer, and
// one reader over all answers, whole and in pieces, with the rememberer.
func sameAsOracles(t testing.TB, k listKind, answers ...[]byte) {
	t.Helper()
	r, inPieces, oracle := k.reader(), k.reader(), &rememberer{kind: k}
	for i, b := range answers {
		want, wantErr := k.decode(b)
		got, err := read(k.reader(), b)
		sameAnswer(t, "a fresh reader", b, want, wantErr, got, err)
		want, wantErr = oracle.read(b)
		got, err = read(r, b)
		sameAnswer(t, "the reader", b, want, wantErr, got, err)
		var pieces mem.BufferSlice
		for piece := range slices.Chunk(b, 1+len(b)*(i+1)/(len(answers)+3)) {
			pieces = append(pieces, mem.SliceBuffer(slices.Clip(piece)))
		}
		got, err = inPieces.read(pieces)
		sameAnswer(t, "the reader, in pieces", b, want, wantErr, got, err)
		must.Equal(t, len(r.items), len(oracle.known), "answer %d, %x: items are remembered", i, b)
	}
}

func sameAnswer(t testing.TB, who string, b []byte, want []Entry, wantErr error, got []*Entry, err error) {
	t.Helper()
	must.Equal(t, err != nil, wantErr != nil, "%s of %x: %v; want %v", who, b, err, wantErr)
	var values []Entry
	for _, it := range got {
		values = append(values, *it)
	}
	if diff := cmp.Diff(want, values); err == nil && diff != "" {
		t.Fatalf("%s of %x (-want +got):\n%s", who, b, diff)
	}
}

// read reads an answer that came in one piece.
func read(r *listReader, b []byte) ([]*Entry, error) {
	return r.read(mem.BufferSlice{mem.SliceBuffer(b)})
}
