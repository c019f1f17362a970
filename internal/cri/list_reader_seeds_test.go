package cri

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func someContainer() *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: "c1", PodSandboxId: "s1",
		Metadata: &runtimeapi.ContainerMetadata{Name: "server", Attempt: 3},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:1", Annotations: map[string]string{"a": "b"}},
		ImageRef: "sha256:1", State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 1_790_000_000_000_000_001,
		Labels:      map[string]string{"io.kubernetes.pod.uid": "u1", "io.kubernetes.pod.name": "p1", "io.kubernetes.pod.namespace": "ns"},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "3"}, ImageId: "sha256:2",
	}
}

func someSandbox() *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p1", Uid: "u1", Namespace: "ns", Attempt: 1},
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7,
		Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"k": "v"}, RuntimeHandler: "runc",
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listOf is a list answer that holds the items.
func listOf(items ...[]byte) []byte {
	var b []byte
	for _, it := range items {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), it)
	}
	return b
}

func varint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func text(num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), s)
}

func group(num protowire.Number, inside ...byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.StartGroupType)
	return protowire.AppendTag(append(b, inside...), num, protowire.EndGroupType)
}

// entry is one entry of a map field.
func entry(num protowire.Number, key, value string) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(text(1, key), text(2, value)))
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// oddItems are encodings of one item, by their peculiarity. first is the number of the
// item's first map, trailing that of the text behind the maps.
func oddItems(item []byte, first, trailing protowire.Number) map[string][]byte {
	fields, _ := fieldsOf(item)
	reversed := slices.Clone(fields)
	slices.Reverse(reversed)
	var backwards, mapsFirst, mapsLast []byte
	for _, f := range reversed {
		backwards = append(backwards, f.raw...)
	}
	for _, f := range fields {
		if f.num >= first {
			mapsFirst = append(mapsFirst, f.raw...)
		} else {
			mapsLast = append(mapsLast, f.raw...)
		}
	}
	state := first - 2 // in both messages: state, created_at, labels
	odd := map[string][]byte{
		"as it is":                      item,
		"nothing":                       {},
		"only an id":                    text(1, "c1"),
		"empty id":                      join(text(1, ""), item[len(text(1, "c1")):]),
		"no id":                         item[len(text(1, "c1")):],
		"id twice":                      join(text(1, "c0"), item),
		"id again at the end":           join(item, text(1, "c9")),
		"id of the wrong type":          join(varint(1, 7), item),
		"id that is no UTF-8":           join(text(1, "\xff\xfe"), item[len(text(1, "c1")):]),
		"backwards":                     backwards,
		"maps before fixed fields":      join(mapsFirst, mapsLast),
		"id, maps, fixed fields":        join(text(1, "c1"), mapsFirst, mapsLast[len(text(1, "c1")):]),
		"state behind the maps":         join(item, varint(state, 1)),
		"state twice":                   join(text(1, "c1"), varint(state, 2), item),
		"a state nobody knows":          join(item, varint(state, 77)),
		"a negative state":              join(item, varint(state, 1<<64-1)),
		"state of the wrong type":       join(item, text(state, "x")),
		"created twice":                 join(item, varint(first-1, 12)),
		"unknown fields":                join(text(1, "c1"), varint(4000, 1), text(4001, "\xff"), group(4002), item),
		"unknown field at the end":      join(item, text(4000, "x")),
		"fixed32 and fixed64":           join(item, protowire.AppendFixed32(protowire.AppendTag(nil, 90, protowire.Fixed32Type), 1), protowire.AppendFixed64(protowire.AppendTag(nil, 91, protowire.Fixed64Type), 1)),
		"a group in a group":            join(item, group(90, group(91, varint(1, 1)...)...)),
		"a group that does not end":     join(item, protowire.AppendTag(nil, 90, protowire.StartGroupType)),
		"an end without a group":        join(item, protowire.AppendTag(nil, 90, protowire.EndGroupType)),
		"group of the id's number":      join(group(1), item),
		"metadata merged":               join(item, text(2, "\x0a\x01z"), text(3, "\x0a\x01z")),
		"metadata with bad UTF-8":       join(item, text(2, "\x0a\x01\xff"), text(3, "\x0a\x01\xff")),
		"wire type 6":                   join(item, []byte{9<<3 | 6, 0}),
		"field number 0":                join(item, []byte{0, 0}),
		"field number too large":        join(item, protowire.AppendVarint(nil, uint64(1<<29)<<3), []byte{1}),
		"tag of 10 bytes":               join(item, bytes.Repeat([]byte{0x80}, 9), []byte{1}),
		"varint of 11 bytes":            join(item, []byte{0x40}, bytes.Repeat([]byte{0xff}, 10), []byte{1}),
		"hostile length":                join(item, protowire.AppendTag(nil, first, protowire.BytesType), protowire.AppendVarint(nil, 1<<40)),
		"length of 2^64-1":              join(item, protowire.AppendTag(nil, first, protowire.BytesType), protowire.AppendVarint(nil, 1<<64-1)),
		"truncated":                     item[:len(item)-1],
		"truncated in the id":           item[:3],
		"trailing text bad UTF-8":       join(item, text(trailing, "\xc3\x28")),
		"trailing text twice":           join(item, text(trailing, "x"), text(trailing, "y")),
		"trailing text, wrong type":     join(item, varint(trailing, 4)),
		"trailing text, then maps":      join(text(1, "c1"), text(trailing, "x"), entry(first, "io.kubernetes.pod.uid", "u7")),
		"unknown fields, trailing text": join(text(1, "c1"), varint(4000, 1), text(4001, "\xff"), group(4002), item, text(trailing, "x")),
		"unknown fields, bad trailing":  join(text(1, "c1"), varint(4000, 1), text(4001, "\xff"), group(4002), item, text(trailing, "\xff")),
		"a long text behind the maps":   join(item, text(trailing, strings.Repeat("x", 20_000))),
		"a long text that is no UTF-8":  join(item, text(trailing, strings.Repeat("x", 20_000)+"\xff")),
		"label key bad UTF-8":           join(item, entry(first, "\xff", "v")),
		"label value bad UTF-8":         join(item, entry(first, "k", "\xff")),
		"annotation bad UTF-8":          join(item, entry(first+1, "\xff", "\xff")),
		"label twice":                   join(item, entry(first, "io.kubernetes.pod.uid", "u8"), entry(first, "io.kubernetes.pod.uid", "u9")),
		"label without a value":         join(item, text(first, "\x0a\x15io.kubernetes.pod.uid")),
		"label with odd fields":         join(item, text(first, "\x1a\x01x\x12\x01v\x0a\x01k\x12\x01w")),
		"label of the wrong type":       join(item, varint(first, 3)),
		"label that is no message":      join(item, text(first, "\x07")),
	}
	return odd
}

// oddLists are list answers, by their peculiarity.
func oddLists(item []byte, odd map[string][]byte) map[string][]byte {
	lists := map[string][]byte{
		"empty":                  {},
		"one":                    listOf(item),
		"the same twice":         listOf(item, item),
		"unknown field between":  join(listOf(item), text(12, "\xff"), varint(13, 1), group(14), listOf(item)),
		"another field of items": join(text(2, string(item)), listOf(item)),
		"items of another type":  join(varint(1, 5), listOf(item)),
		"items as a group":       join(group(1, item...), listOf(item)),
		"truncated":              listOf(item)[:len(item)],
		"hostile length":         join(listOf(item), []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}),
		"length of 2^63":         join(listOf(item), []byte{0x0a}, protowire.AppendVarint(nil, 1<<63)),
		"garbage":                bytes.Repeat([]byte{0xff}, 64),
		"field number 0":         join(listOf(item), []byte{0x00}),
		"field number 2^29":      join(listOf(item), protowire.AppendVarint(nil, uint64(1<<29)<<3), []byte{1}),
		"field number 2^31":      join(listOf(item), protowire.AppendVarint(nil, uint64(1<<31)<<3), []byte{1}),
		"an end without a group": join(listOf(item), protowire.AppendTag(nil, 1, protowire.EndGroupType)),
	}
	for _, name := range slices.Sorted(maps.Keys(odd)) {
		lists["item: "+name] = listOf(odd[name])
		lists["twice: "+name] = listOf(item, odd[name])
		lists["first: "+name] = listOf(odd[name], item)
	}
	return lists
}

func oddContainers(t testing.TB) map[string][]byte {
	item := encode(t, someContainer())
	odd := oddItems(item, 8, 10)
	for name, edit := range map[string]func(*runtimeapi.Container){
		"nil metadata": func(c *runtimeapi.Container) { c.Metadata = nil },
		"nil image":    func(c *runtimeapi.Container) { c.Image = nil },
		"no labels":    func(c *runtimeapi.Container) { c.Labels, c.Annotations = nil, nil },
		"other labels": func(c *runtimeapi.Container) { c.Labels = map[string]string{"io.kubernetes.pod.uid": "u2"} },
		"no image id":  func(c *runtimeapi.Container) { c.ImageId = "" },
		"exited":       func(c *runtimeapi.Container) { c.State = runtimeapi.ContainerState_CONTAINER_EXITED },
		"unknown":      func(c *runtimeapi.Container) { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN },
	} {
		c := someContainer()
		edit(c)
		odd[name] = encode(t, c)
	}
	return oddLists(item, odd)
}

func oddSandboxes(t testing.TB) map[string][]byte {
	item := encode(t, someSandbox())
	odd := oddItems(item, 5, 7)
	for name, edit := range map[string]func(*runtimeapi.PodSandbox){
		"nil metadata": func(s *runtimeapi.PodSandbox) { s.Metadata = nil },
		"no labels":    func(s *runtimeapi.PodSandbox) { s.Labels, s.Annotations = nil, nil },
		"no handler":   func(s *runtimeapi.PodSandbox) { s.RuntimeHandler = "" },
		"ready":        func(s *runtimeapi.PodSandbox) { s.State = runtimeapi.PodSandboxState_SANDBOX_READY },
	} {
		s := someSandbox()
		edit(s)
		odd[name] = encode(t, s)
	}
	return oddLists(item, odd)
}
