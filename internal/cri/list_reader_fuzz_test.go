package cri

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// FuzzListReader reads any bytes with a fresh reader, as the generated decoder
// does, and then again with the reader that knows them.
func FuzzListReader(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, lists := range []map[string][]byte{oddSandboxes(f), oddContainers(f)} {
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			f.Add(lists[name])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sameAsDecoder(t, sandboxKind(), b)
		sameAsDecoder(t, containerKind(), b)
		sameAsRememberer(t, sandboxKind(), b, b)
		sameAsRememberer(t, containerKind(), b, b)
	})
}

// FuzzListReaderRemembers makes a few answers out of the bytes, of items that
// have much in common, and reads them one after another.
func FuzzListReaderRemembers(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	f.Add([]byte("a container, the same again, a third time, and then without its labels"))
	f.Add([]byte{3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		p := script(program)
		containers := p.next(2) == 1
		answers := make([][]byte, 2+p.next(3))
		for i := range answers {
			answers[i] = p.list(containers)
			if i > 0 && p.next(6) == 0 { // exactly what there was
				answers[i] = answers[i-1]
			}
		}
		if containers {
			sameAsDecoder(t, containerKind(), answers[0])
			sameAsRememberer(t, containerKind(), answers...)
		} else {
			sameAsDecoder(t, sandboxKind(), answers[0])
			sameAsRememberer(t, sandboxKind(), answers...)
		}
	})
}

// script makes choices out of a fuzzer's bytes; at their end it chooses 0.
type script []byte

func (p *script) next(n int) int {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return int(b) % n
}

func (p *script) list(containers bool) []byte {
	var b []byte
	for range p.next(5) {
		switch p.next(24) {
		case 0:
			b = append(b, p.odd()...)
		case 1:
			b = append(b, varint(1, uint64(p.next(256)))...)
		}
		b = append(b, listOf(p.item(containers))...)
	}
	if p.next(40) == 1 {
		b = b[:len(b)-min(len(b), p.next(9))]
	}
	return b
}

// item makes one item: mostly as a runtime would, from few different values.
func (p *script) item(containers bool) []byte {
	labels, trailing := protowire.Number(5), protowire.Number(7)
	id := text(1, []string{"a", "b", "c", "", "\xff"}[pick(p.next(16), 6, 6, 2, 1, 1)])
	state := uint64([]int{0, 1, 2, 3, 9}[pick(p.next(16), 4, 6, 4, 1, 1)])
	var fields [][]byte
	if containers {
		labels, trailing = 8, 10
		fields = [][]byte{id, text(2, "s"), p.maybe(text(3, "\x0a\x01n\x10\x02")), p.maybe(text(4, "\x0a\x01i")), text(5, "r"), varint(6, state), varint(7, uint64(p.next(3)))}
	} else {
		fields = [][]byte{id, p.maybe(text(2, "\x0a\x01n\x12\x01u\x1a\x01m\x20\x03")), varint(3, state), varint(4, uint64(p.next(3)))}
	}
	values := []string{"u1", "u2", "", "\xff"}
	for range p.next(3) {
		fields = append(fields, entry(labels, "io.kubernetes.pod.uid", values[pick(p.next(16), 7, 7, 1, 1)]))
	}
	if p.next(2) == 0 {
		fields = append(fields, entry(labels+1, "k", values[pick(p.next(16), 7, 7, 1, 1)]))
	}
	if p.next(3) == 0 {
		fields = append(fields, text(trailing, values[pick(p.next(16), 7, 7, 1, 1)]))
	}
	switch p.next(12) {
	case 0: // two change places
		i, j := p.next(len(fields)), p.next(len(fields))
		fields[i], fields[j] = fields[j], fields[i]
	case 1: // one more, somewhere
		fields = slices.Insert(fields, p.next(len(fields)+1), p.odd())
	case 2: // one again, somewhere
		fields = slices.Insert(fields, p.next(len(fields)+1), fields[p.next(len(fields))])
	case 3: // one less
		i := p.next(len(fields))
		fields = slices.Delete(fields, i, i+1)
	}
	b := join(fields...)
	switch p.next(40) {
	case 1:
		b = b[:len(b)-min(len(b), p.next(9))]
	case 2:
		if len(b) > 0 {
			b[p.next(len(b))] ^= byte(1 << p.next(8))
		}
	}
	return b
}

func (p *script) maybe(field []byte) []byte {
	if p.next(8) == 1 {
		return nil
	}
	return field
}

// odd is a field that does not belong there.
func (p *script) odd() []byte {
	num := protowire.Number(1 + p.next(12))
	switch p.next(8) {
	case 0:
		return varint(num, uint64(p.next(256)))
	case 1:
		return text(num, "\x0a\x01x")
	case 2:
		return text(num, "\xff")
	case 3:
		return group(num, varint(3, 4)...)
	case 4:
		return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), 7)
	case 5:
		return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), 7)
	case 6:
		return protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3)
	default:
		return protowire.AppendTag(nil, num, protowire.EndGroupType)
	}
}

// pick returns which of the shares n falls into.
func pick(n int, shares ...int) int {
	for i, s := range shares {
		if n < s {
			return i
		}
		n -= s
	}
	return 0
}
