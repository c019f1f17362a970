package fakeruntime

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A list's answer is put together from the encoded parts of its entries, since
// the generated marshaller takes 90 ms of CPU and 25 MB of garbage for 5000 pods,
// beside the client that is being measured. What comes out is what it would have
// written: fields in the order of their numbers, and the entries of each map from
// a random start, as Go walks a small map.

// encoded is one entry's parts.
type encoded struct {
	head                []byte // the fields before labels
	labels, annotations [][]byte
	tail                []byte // the fields after annotations
	size                int
}

// The field numbers of labels in runtime.v1; annotations come next.
const (
	sandboxLabels   protowire.Number = 5
	containerLabels protowire.Number = 8
)

// listItem is the field number of the entries in both lists' answers.
const listItem protowire.Number = 1

// encode takes an entry apart. bare is the entry without its labels and
// annotations. An entry of the same id whose maps are the same gives its parts.
func encode(bare proto.Message, labelsField protowire.Number, labels, annotations map[string]string, same *encoded) (*encoded, error) {
	b, err := proto.Marshal(bare)
	if err != nil {
		return nil, err
	}
	e := &encoded{}
	for rest := b; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, fmt.Errorf("fakeruntime: take an entry apart: %w", protowire.ParseError(n))
		}
		if number > labelsField {
			e.tail = rest
			break
		}
		rest = rest[n:]
	}
	e.head = b[:len(b)-len(e.tail)]
	if same != nil {
		e.labels, e.annotations = same.labels, same.annotations
	} else {
		e.labels = encodeMap(labelsField, labels)
		e.annotations = encodeMap(labelsField+1, annotations)
	}
	e.size = len(b)
	for _, l := range e.labels {
		e.size += len(l)
	}
	for _, a := range e.annotations {
		e.size += len(a)
	}
	return e, nil
}

func encodeMap(field protowire.Number, m map[string]string) [][]byte {
	out := make([][]byte, 0, len(m))
	for k, v := range m {
		n := 2 + protowire.SizeBytes(len(k)) + protowire.SizeBytes(len(v))
		b := make([]byte, 0, n+8)
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, k)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendString(b, v)
		out = append(out, b)
	}
	return out
}

// appendList appends the entries to an answer, each with its maps in an order of
// their own.
func appendList(b []byte, entries []*encoded, random *rand.Rand) []byte {
	for _, e := range entries {
		b = protowire.AppendTag(b, listItem, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(e.size))
		b = append(b, e.head...)
		b = appendMap(b, e.labels, random)
		b = appendMap(b, e.annotations, random)
		b = append(b, e.tail...)
	}
	return b
}

// appendMap appends a map's entries from a random start. A Go map of up to eight
// entries is walked from one of its eight slots, empty ones included.
func appendMap(b []byte, m [][]byte, random *rand.Rand) []byte {
	if len(m) == 0 {
		return b
	}
	start := random.IntN(max(8, len(m)))
	if start >= len(m) {
		start = 0
	}
	for _, e := range m[start:] {
		b = append(b, e...)
	}
	for _, e := range m[:start] {
		b = append(b, e...)
	}
	return b
}

func listSize(entries []*encoded) int {
	n := 0
	for _, e := range entries {
		n += e.size + 8
	}
	return n
}

// The parts are made when a list first needs them, and again when the entry was
// replaced. Called with the model's lock held.

func (s *sandbox) parts() (*encoded, error) {
	if s.encodedFrom == s.entry {
		return s.encoded, nil
	}
	bare := withSandboxState(s.entry, s.entry.GetState())
	bare.Labels, bare.Annotations = nil, nil
	e, err := encode(bare, sandboxLabels, s.entry.Labels, s.entry.Annotations, s.encoded)
	if err != nil {
		return nil, err
	}
	s.encoded, s.encodedFrom = e, s.entry
	return e, nil
}

func (c *container) parts() (*encoded, error) {
	if c.encodedFrom == c.entry {
		return c.encoded, nil
	}
	bare := withContainerState(c.entry, c.entry.GetState())
	bare.Labels, bare.Annotations = nil, nil
	e, err := encode(bare, containerLabels, c.entry.Labels, c.entry.Annotations, c.encoded)
	if err != nil {
		return nil, err
	}
	c.encoded, c.encodedFrom = e, c.entry
	return e, nil
}

// encodeRaw takes an entry that a test gave as it is; its maps are written in the
// marshaller's own order.
func encodeRaw(m proto.Message) (*encoded, error) {
	b, err := proto.Marshal(m)
	return &encoded{head: b, size: len(b)}, err
}

// answerSandboxes is what ListPodSandbox answers, encoded.
func (m *Model) answerSandboxes(f *runtimeapi.PodSandboxFilter) ([]byte, error) {
	m.mu.Lock()
	entries := make([]*encoded, 0, len(m.sandboxes.list)+len(m.rawSandboxes))
	var failure error
	add := func(e *encoded, err error) {
		entries = append(entries, e)
		if err != nil {
			failure = err
		}
	}
	for _, s := range m.sandboxes.list {
		if sandboxMatches(f, s.entry) {
			add(s.parts())
		}
	}
	for _, s := range m.rawSandboxes {
		if sandboxMatches(f, s) {
			add(encodeRaw(s))
		}
	}
	random, raw := m.mix(entries), m.rawSandboxBytes
	m.mu.Unlock()
	if failure != nil {
		return nil, failure
	}
	b := make([]byte, 0, listSize(entries)+len(raw))
	return append(appendList(b, entries, random), raw...), nil
}

// answerContainers is what ListContainers answers, encoded.
func (m *Model) answerContainers(f *runtimeapi.ContainerFilter) ([]byte, error) {
	m.mu.Lock()
	entries := make([]*encoded, 0, len(m.containers.list)+len(m.rawContainers))
	var failure error
	add := func(e *encoded, err error) {
		entries = append(entries, e)
		if err != nil {
			failure = err
		}
	}
	for _, c := range m.containers.list {
		if containerMatches(f, c.entry) {
			add(c.parts())
		}
	}
	for _, c := range m.rawContainers {
		if containerMatches(f, c) {
			add(encodeRaw(c))
		}
	}
	random, raw := m.mix(entries), m.rawContainerBytes
	m.mu.Unlock()
	if failure != nil {
		return nil, failure
	}
	b := make([]byte, 0, listSize(entries)+len(raw))
	return append(appendList(b, entries, random), raw...), nil
}

// mix shuffles the entries and returns a source for the order of their maps, to
// be used without the lock.
func (m *Model) mix(entries []*encoded) *rand.Rand {
	m.shuffle.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return rand.New(rand.NewPCG(m.shuffle.Uint64(), 0))
}
