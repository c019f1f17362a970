package cri

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// source cuts an answer into items. An answer comes in the pieces in which the
// transport received it, 16 KiB each; an item is handed out where it lies, and
// only one that spans pieces is put together in a buffer: about one in
// sixteen, where one buffer for all would be one more pass over every byte and
// would need as much memory again.
type source struct {
	rest   mem.BufferSlice // pieces not yet begun
	taken  int             // but for these bytes of the first one
	piece  []byte          // what is left of the one begun
	joined []byte          // items put together since the last release
	inside bool            // piece lies in joined
}

// maxHeader is the longest encoding of a field's number and length: two varints,
// which may take more bytes than they need.
const maxHeader = 10 + 10

// maxJoined is the buffer that is kept from one answer to the next.
const maxJoined = 256 << 10

func (s *source) start(data mem.BufferSlice) {
	s.rest, s.taken, s.piece, s.inside = data, 0, nil, false
	s.joined = s.joined[:0]
}

// end lets go of the answer.
func (s *source) end() {
	s.rest, s.piece, s.inside = nil, nil, false
	if cap(s.joined) > maxJoined {
		s.joined = nil
	}
}

// release says that no item handed out before is in use any more.
func (s *source) release() {
	if !s.inside || len(s.piece) == 0 {
		s.joined = s.joined[:0]
	}
}

// next returns the next item; ok is false at the end of the answer. Items stay
// valid until the next release.
func (s *source) next() (raw []byte, ok bool, err error) {
	for {
		b := s.piece
		if len(b) == 0 {
			if len(s.rest) == 0 {
				return nil, false, nil
			}
			s.piece, s.inside = s.head(), false
			s.rest, s.taken = s.rest[1:], 0
			continue
		}
		// What nearly every item looks like: 1 KB, in one piece.
		if len(b) > 3 && b[0] == fieldListItems<<3|byte(protowire.BytesType) && b[1] >= 0x80 && b[2] < 0x80 {
			if size := int(b[1]&0x7f) | int(b[2])<<7; size <= len(b)-3 {
				s.piece = b[3+size:]
				return b[3 : 3+size], true, nil
			}
		}
		if len(b) < maxHeader && len(s.rest) > 0 {
			s.join(maxHeader)
			b = s.piece
		}
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber { // ConsumeTag lets larger ones pass
			return nil, false, errWire
		}
		if typ != protowire.BytesType {
			// No runtime sends any: all that is left, in one buffer.
			s.join(maxAnswer)
			m := protowire.ConsumeFieldValue(num, typ, s.piece[n:])
			if m < 0 {
				return nil, false, errWire
			}
			s.piece = s.piece[n+m:]
			continue
		}
		size, m := protowire.ConsumeVarint(b[n:])
		if m < 0 || size > maxAnswer {
			return nil, false, errWire
		}
		end := n + m + int(size)
		if end > len(b) && num != fieldListItems {
			// Of no interest, and possibly most of 16 MiB.
			if !s.skip(end) {
				return nil, false, errWire
			}
			continue
		}
		if end > len(b) {
			s.join(end)
			if b = s.piece; end > len(b) {
				return nil, false, errWire
			}
		}
		s.piece = b[end:]
		if num == fieldListItems {
			return b[n+m : end], true, nil
		}
	}
}

// head returns what is left of the first piece not yet begun.
func (s *source) head() []byte { return s.rest[0].ReadOnlyData()[s.taken:] }

// skip passes over the next n bytes, and tells whether there were as many.
func (s *source) skip(n int) bool {
	for n > len(s.piece) {
		if len(s.rest) == 0 {
			return false
		}
		n -= len(s.piece)
		s.piece, s.inside = s.rest[0].ReadOnlyData()[s.taken:], false
		s.rest, s.taken = s.rest[1:], 0
	}
	s.piece = s.piece[n:]
	return true
}

// maxAnswer is more than any answer has.
const maxAnswer = 1 << 31

// join makes the piece begun n bytes long, or as long as what is left of the
// answer.
func (s *source) join(n int) {
	left := len(s.piece) - s.taken
	for _, piece := range s.rest {
		left += piece.Len()
	}
	from := len(s.joined)
	s.joined = slices.Grow(s.joined, max(min(n, left), len(s.piece)))
	s.joined = append(s.joined, s.piece...)
	for missing := from + n - len(s.joined); missing > 0 && len(s.rest) > 0; missing = from + n - len(s.joined) {
		next := s.head()
		if missing < len(next) {
			s.joined = append(s.joined, next[:missing]...)
			s.taken += missing
			break
		}
		s.joined = append(s.joined, next...)
		s.rest, s.taken = s.rest[1:], 0
	}
	s.piece, s.inside = s.joined[from:], true
}
