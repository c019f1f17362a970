package cri

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
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

// notPlain is the length of the fixed part of an item that does not begin with
// an id and go on with fixed fields, then maps and trailing text.
const notPlain = -1

// shape is what a kind of item looks like on the wire.
type shape struct {
	// kinds tells for each first byte of a field what may be done with it.
	kinds [256]fieldKind
}

type fieldKind uint8

const (
	kindOdd    fieldKind = iota // for protowire to decide
	kindVarint                  // a fixed field, a number
	kindBytes                   // a fixed field with a length
	kindMap                     // labels or annotations
	kindText                    // text behind the maps
)

func bits(numbers ...int) uint16 {
	var set uint16
	for _, n := range numbers {
		set |= 1 << n
	}
	return set
}

// newShape returns the shape of items whose maps and trailing text have these
// numbers.
func newShape(maps, text uint16) shape {
	var s shape
	for num := 1; num < 16; num++ {
		kind := kindBytes
		switch {
		case maps&(1<<num) != 0:
			kind = kindMap
		case text&(1<<num) != 0:
			kind = kindText
		default:
			s.kinds[num<<3|int(protowire.VarintType)] = kindVarint
		}
		s.kinds[num<<3|int(protowire.BytesType)] = kind
	}
	return s
}

// of returns an item's id and the length of its fixed part; notPlain for one
// that has another shape or is no valid message. It does what protowire does
// for fields of a number up to 15 with a length below 16 KiB, as all are that
// runtimes send, at a fraction of its cost.
func (s *shape) of(raw []byte) (id []byte, fixed int) {
	if len(raw) < 3 || raw[0] != fieldID<<3|byte(protowire.BytesType) || raw[1]-1 >= 0x7f || int(raw[1])+2 > len(raw) {
		return s.slow(raw)
	}
	id = raw[2 : 2+raw[1]]
	fixed = notPlain
	for at := 2 + len(id); at < len(raw); {
		kind := s.kinds[raw[at]]
		if kind == kindVarint {
			if fixed >= 0 {
				return nil, notPlain
			}
			end := at + 1
			for end < len(raw) && raw[end] >= 0x80 {
				end++
			}
			if end == len(raw) || end-at > 9 { // cut off, or ten bytes, the last of which may be too large
				return s.slow(raw)
			}
			at = end + 1
			continue
		}
		if kind == kindOdd || at+2 > len(raw) {
			return s.slow(raw)
		}
		size, from := int(raw[at+1]), at+2
		if size >= 0x80 {
			if from >= len(raw) || raw[from] >= 0x80 {
				return s.slow(raw)
			}
			size, from = size&0x7f|int(raw[from])<<7, from+1
		}
		if size > len(raw)-from {
			return nil, notPlain // cut off
		}
		switch {
		case kind == kindBytes:
			if fixed >= 0 {
				return nil, notPlain
			}
		case fixed < 0:
			fixed = at
		}
		if kind == kindText && !utf8.Valid(raw[from:from+size]) {
			return nil, notPlain
		}
		at = from + size
	}
	if fixed < 0 {
		fixed = len(raw)
	}
	return id, fixed
}

// slow is of for any encoding.
func (s *shape) slow(raw []byte) (id []byte, fixed int) {
	fixed = notPlain
	for at := 0; at < len(raw); {
		num, typ, n := protowire.ConsumeTag(raw[at:])
		if n < 0 || num > protowire.MaxValidNumber {
			return nil, notPlain
		}
		m := protowire.ConsumeFieldValue(num, typ, raw[at+n:])
		if m < 0 {
			return nil, notPlain
		}
		var value []byte
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(raw[at+n:])
		}
		if at == 0 {
			if num != fieldID || len(value) == 0 {
				return nil, notPlain
			}
			id = value
		}
		kind := kindBytes
		if num < 16 {
			if k := s.kinds[num<<3|protowire.Number(protowire.BytesType)]; k == kindMap || k == kindText {
				kind = k
			}
		}
		switch {
		case kind == kindBytes && fixed >= 0, // a fixed field behind the maps
			kind != kindBytes && typ != protowire.BytesType,
			kind == kindText && !utf8.Valid(value):
			return nil, notPlain
		case kind != kindBytes && fixed < 0:
			fixed = at
		}
		at += n + m
	}
	if fixed < 0 && id != nil {
		fixed = len(raw)
	}
	return id, fixed
}
