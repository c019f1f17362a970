package cri

import (
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// answer receives the bytes of one answer: it notes their number and when they were
// complete, and hands them to decode, in the pieces in which they came. decode must not
// keep them.
type answer struct {
	bytes    int
	received time.Time // zero while the answer is not complete
	decode   func(mem.BufferSlice) error
}

// checked decodes an answer whose content nobody reads. Above smallBytes it is not even
// decoded: dozens of these calls are made one after another.
func checked(m proto.Message) *answer {
	decoded := into(m)
	return &answer{decode: func(data mem.BufferSlice) error {
		if data.Len() > smallBytes {
			return nil
		}
		return decoded.decode(data)
	}}
}

// into decodes an answer with the generated decoder, which needs it in one piece.
func into(m proto.Message) *answer {
	return &answer{decode: func(data mem.BufferSlice) error {
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		// Unknown fields are never read.
		return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buf.ReadOnlyData(), m)
	}}
}

// large serialises the decoding of large answers, so that only one of them takes memory.
var large sync.Mutex

// codec is the gRPC codec of the connections of plegd. It replaces the default one
// for two reasons: the size of an answer is then known without a stats
// handler, and a list can be read from the received bytes as they are.
type codec struct{}

// Name returns "", so that the content type is "application/grpc", as the
// kubelet's is. grpc-go makes a content subtype of the name of a forced codec,
// and CRI-O never answers "application/grpc+proto": the cmux in front of its
// gRPC server compares the whole header value.
func (codec) Name() string { return "" }

// Marshal encodes a request with the generated encoder.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal hands an answer's bytes to its decoder.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	a := v.(*answer)
	a.bytes = data.Len()
	a.received = time.Now()
	if a.bytes > smallBytes {
		large.Lock()
		defer large.Unlock()
	}
	return a.decode(data)
}
