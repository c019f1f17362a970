package fakeruntime

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// garbage is no valid message: a tag that never ends. As the head of an HTTP/2 frame
// its length exceeds every client's limit.
func garbage() []byte { return bytes.Repeat([]byte{0xff}, 64) }

// changeAnswer changes an answer according to the term. The answer itself belongs to
// the handler; the values it points to are shared and must stay unchanged.
func changeAnswer(t Term, resp proto.Message) proto.Message {
	switch t.kind {
	case kindOversize:
		pad(resp, t.size)
	case kindEmpty, kindGarbage:
		resp = resp.ProtoReflect().New().Interface()
		if t.kind == kindGarbage {
			resp.ProtoReflect().SetUnknown(garbage()) // marshalled unchanged
		}
	case kindNotReady:
		if st, ok := resp.(*cri.StatusResponse); ok {
			st.Status.Conditions = append(without(st.Status.Conditions, t.text), notReady(t.text))
			if t.text == cri.NetworkReady && st.Info != nil {
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
