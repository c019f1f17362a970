package fakeruntime

import (
	"bytes"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rawAnswer is sent as it is, in place of a message.
type rawAnswer []byte

// codec is gRPC's own for protobuf, which marshals again for each answer and walks
// maps in Go's random order, and lets rawAnswer pass.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(rawAnswer); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// garbage is no valid message: a tag that never ends. As the head of an HTTP/2
// frame it is larger than any client allows.
func garbage() []byte { return bytes.Repeat([]byte{0xff}, 64) }

// changeAnswer makes of an answer what the term says. The answer itself is the
// handler's own; what it points to is shared and stays as it is.
func changeAnswer(t Term, resp proto.Message) any {
	switch t.kind {
	case kindOversize:
		pad(resp, t.size)
	case kindEmpty:
		return resp.ProtoReflect().New().Interface()
	case kindGarbage:
		return rawAnswer(garbage())
	case kindNotReady:
		if st, ok := resp.(*runtimeapi.StatusResponse); ok {
			st.Status.Conditions = append(without(st.Status.Conditions, t.text), notReady(t.text))
			if t.text == runtimeapi.NetworkReady && st.Info != nil {
				st.Info["lastCNILoadStatus"] = CNILoadStatusNoConfig
			}
		}
	}
	return resp
}

// padField is a field number that no CRI message has.
const padField protowire.Number = 10000

// pad makes a message size bytes long on the wire, if it is shorter by enough to
// hold a field at all.
func pad(m proto.Message, size int) {
	room := size - proto.Size(m) - protowire.SizeTag(padField)
	n := room - protowire.SizeVarint(uint64(max(room, 0)))
	if n < 0 {
		return
	}
	// A shorter length can take a byte less to write, which the content makes up.
	if protowire.SizeBytes(n) < room {
		n++
	}
	b := protowire.AppendTag(nil, padField, protowire.BytesType)
	b = protowire.AppendBytes(b, make([]byte, n))
	r := m.ProtoReflect()
	r.SetUnknown(append(r.GetUnknown(), b...))
}

// serveStream runs a streaming handler with its messages changed as the term says.
func serveStream(t Term, srv any, stream grpc.ServerStream, handler grpc.StreamHandler) error {
	switch t.kind {
	case kindEmpty:
		return nil
	case kindGarbage:
		return stream.SendMsg(rawAnswer(garbage()))
	case kindOversize:
		stream = &paddedStream{stream, t.size}
	}
	return handler(srv, stream)
}

// paddedStream pads the messages of one stream.
type paddedStream struct {
	grpc.ServerStream
	size int
}

func (s *paddedStream) SendMsg(m any) error {
	c := proto.CloneOf(m.(proto.Message)) // events are shared between subscribers
	pad(c, s.size)
	return s.ServerStream.SendMsg(c)
}
