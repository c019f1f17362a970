package cri

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	must.Do(t, err)
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
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), join(text(1, key), text(2, value)))
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// oddItems are unusual encodings of one item, by their difference. first is the
// number of the item's first map, trailing that of the text behind the maps.
func oddItems(item []byte, first, trailing protowire.Number) map[string][]byte {
	fields, _ := fieldsOf(item)
	var backwards, mapsFirst, mapsLast []byte
	for _, f := range fields {
		backwards = join(f.raw, backwards)
		if f.num >= first {
			mapsFirst = join(mapsFirst, f.raw)
		} else {
			mapsLast = join(mapsLast, f.raw)
		}
	}
	id, state := fields[0].raw, first-2 // in both messages: state, created_at, labels
	noID, unknown := item[len(id):], join(varint(4000, 1), text(4001, "\xff"), group(4002))
	return map[string][]byte{
		"as it is":                  item,
		"nothing":                   {},
		"only an id":                id,
		"empty id":                  join(text(1, ""), noID),
		"no id":                     noID,
		"id twice":                  join(text(1, "c0"), item),
		"id again at the end":       join(item, text(1, "c9")),
		"id of the wrong type":      join(varint(1, 7), item),
		"id that is no UTF-8":       join(text(1, "\xff\xfe"), noID),
		"backwards":                 backwards,
		"maps before fixed fields":  join(mapsFirst, mapsLast),
		"id, maps, fixed fields":    join(id, mapsFirst, mapsLast[len(id):]),
		"state behind the maps":     join(item, varint(state, 1)),
		"state twice":               join(id, varint(state, 2), noID),
		"a state nobody knows":      join(item, varint(state, 77)),
		"a negative state":          join(item, varint(state, 1<<64-1)),
		"state of the wrong type":   join(item, text(state, "x")),
		"unknown fields":            join(id, unknown, noID, text(trailing, "x")),
		"unknown field at the end":  join(item, text(4000, "x")),
		"a group in a group":        join(item, group(90, group(91, varint(1, 1)...)...)),
		"a group that does not end": join(item, protowire.AppendTag(nil, 90, protowire.StartGroupType)),
		"an end without a group":    join(item, protowire.AppendTag(nil, 90, protowire.EndGroupType)),
		"metadata merged":           join(item, text(2, "\x0a\x01z"), text(3, "\x0a\x01z")),
		"metadata with bad UTF-8":   join(item, text(2, "\x0a\x01\xff"), text(3, "\x0a\x01\xff")),
		"wire type 6":               join(item, []byte{9<<3 | 6, 0}),
		"field number 0":            join(item, []byte{0, 0}),
		"varint of 11 bytes":        join(item, []byte{0x40}, bytes.Repeat([]byte{0xff}, 10), []byte{1}),
		"length of 2^64-1":          join(item, protowire.AppendTag(nil, first, protowire.BytesType), protowire.AppendVarint(nil, 1<<64-1)),
		"truncated":                 item[:len(item)-1],
		"truncated in the id":       item[:3],
		"trailing text bad UTF-8":   join(item, text(trailing, "\xc3\x28")),
		"trailing text, then maps":  join(id, text(trailing, "x"), entry(first, "io.kubernetes.pod.uid", "u7")),
		"long text behind the maps": join(item, text(trailing, strings.Repeat("x", 20_000))),
		"label key bad UTF-8":       join(item, entry(first, "\xff", "v")),
		"label twice":               join(item, entry(first, "io.kubernetes.pod.uid", "u8"), entry(first, "io.kubernetes.pod.uid", "u9")),
		"label with odd fields":     join(item, text(first, "\x1a\x01x\x12\x01v\x0a\x01k\x12\x01w")),
		"label of the wrong type":   join(item, varint(first, 3)),
		"label that is no message":  join(item, text(first, "\x07")),
	}
}

// oddLists are unusual list answers, by their difference.
func oddLists(item []byte, odd map[string][]byte) map[string][]byte {
	lists := map[string][]byte{
		"empty":                 {},
		"the same twice":        listOf(item, item),
		"unknown field between": join(listOf(item), text(12, "\xff"), listOf(item)),
		"varint between":        join(listOf(item), varint(12, 1), listOf(item)),
		"fixed fields between":  join(listOf(item), []byte{12<<3 | 1}, make([]byte, 8), []byte{12<<3 | 5}, make([]byte, 4), listOf(item)),
		"group between":         join(listOf(item), group(12, join(varint(1, 1), group(13))...), listOf(item)),
		"group without an end":  join(listOf(item), []byte{12<<3 | 3}),
		"item as a varint":      join(listOf(item), varint(1, 1)),
		"truncated":             listOf(item)[:len(item)],
		"length of 2^63":        join(listOf(item), []byte{0x0a}, protowire.AppendVarint(nil, 1<<63)),
		"garbage":               bytes.Repeat([]byte{0xff}, 64),
		"field number 0":        join(listOf(item), []byte{0x00}),
		"field number 2^29":     join(listOf(item), protowire.AppendVarint(nil, uint64(1<<29)<<3), []byte{1}),
		"field number 2^31":     join(listOf(item), protowire.AppendVarint(nil, uint64(1<<31)<<3), []byte{1}),
	}
	for name, it := range odd {
		lists["item: "+name] = listOf(it)
		lists["twice: "+name] = listOf(item, it)
		lists["first: "+name] = listOf(it, item)
	}
	return lists
}

func oddContainers(t testing.TB) map[string][]byte {
	container := func(edit func(*runtimeapi.Container)) []byte {
		c := &runtimeapi.Container{
			Id: "c1", PodSandboxId: "s1", Metadata: &runtimeapi.ContainerMetadata{Name: "server", Attempt: 3},
			Image:    &runtimeapi.ImageSpec{Image: "sha256:1", Annotations: map[string]string{"a": "b"}},
			ImageRef: "sha256:1", State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 1_790_000_000_000_000_001,
			Labels: map[string]string{
				"io.kubernetes.pod.uid": "u1", "io.kubernetes.pod.name": "p1", "io.kubernetes.pod.namespace": "ns",
			},
			Annotations: map[string]string{"io.kubernetes.container.restartCount": "3"}, ImageId: "sha256:2",
		}
		edit(c)
		return encode(t, c)
	}
	item := container(func(*runtimeapi.Container) {})
	odd := oddItems(item, 8, 10)
	for name, edit := range map[string]func(*runtimeapi.Container){
		"nil metadata":  func(c *runtimeapi.Container) { c.Metadata, c.Image = nil, nil },
		"no labels":     func(c *runtimeapi.Container) { c.Labels, c.Annotations = nil, nil },
		"other labels":  func(c *runtimeapi.Container) { c.Labels["io.kubernetes.pod.uid"] = "u2" },
		"exited":        func(c *runtimeapi.Container) { c.State = runtimeapi.ContainerState_CONTAINER_EXITED },
		"a long prefix": func(c *runtimeapi.Container) { c.ImageRef = strings.Repeat("i", 10_000) },
	} {
		odd[name] = container(edit)
	}
	return oddLists(item, odd)
}

func oddSandboxes(t testing.TB) map[string][]byte {
	sandbox := &runtimeapi.PodSandbox{
		Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p1", Uid: "u1", Namespace: "ns", Attempt: 1},
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7,
		Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"k": "v"}, RuntimeHandler: "runc",
	}
	item := encode(t, sandbox)
	odd := oddItems(item, 5, 7)
	sandbox.State = runtimeapi.PodSandboxState_SANDBOX_READY
	odd["ready"] = encode(t, sandbox)
	sandbox.Metadata = nil
	odd["nil metadata"] = encode(t, sandbox)
	return oddLists(item, odd)
}

// TestListReader reads every odd list, and every odd item after every other, as the
// generated decoder does.
func TestListReader(t *testing.T) {
	readOddLists(t, sandboxKind(), oddSandboxes(t))
	readOddLists(t, containerKind(), oddContainers(t))
}

func readOddLists(t *testing.T, k listKind, lists map[string][]byte) {
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		one := lists["item: as it is"]
		t.Run(name, func(t *testing.T) {
			sameAsOracles(t, k, one, lists[name], one, lists[name])
			for then, b := range lists {
				if strings.HasPrefix(name, "item: ") && strings.HasPrefix(then, "item: ") {
					t.Log("then", then) // shown with a failure
					sameAsOracles(t, k, lists[name], b, lists[name])
				}
			}
		})
	}
}

// FuzzListReader reads any bytes, then the same with one byte changed, and again.
func FuzzListReader(f *testing.F) {
	for _, lists := range []map[string][]byte{oddSandboxes(f), oddContainers(f)} {
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			f.Add(lists[name])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		changed := bytes.Clone(b)
		if n := len(b); n > 2 { // the last bytes choose the change
			changed[(int(b[n-1])<<8+int(b[n-2]))%n] ^= b[n-3] | 1
		}
		sameAsOracles(t, sandboxKind(), b, b, changed, b)
		sameAsOracles(t, containerKind(), b, b, changed, b)
	})
}

// TestListReaderKeepsWhatDoesNotChange: an unchanged container keeps its pointer,
// though runtimes write lists and maps in another order each time, and an unchanged list
// is the last slice. A changed container gets a new value, and the old one stays as it was.
func TestListReaderKeepsWhatDoesNotChange(t *testing.T) {
	model := fakeruntime.New(fakeruntime.Options{Seed: 1})
	model.FillPods(50, 2)
	_, list := model.Snapshot()
	changed := list[7].Id
	r := containerKind().reader()
	first := map[string]*Entry{}
	var last []*Entry
	for i := range 20 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if at := slices.IndexFunc(list, func(c *runtimeapi.Container) bool { return c.Id == changed }); i == 19 {
			list[at].State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		b, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: list})
		must.Do(t, err)
		got, err := read(r, b)
		if err != nil || len(got) != 100 {
			t.Fatalf("%d containers, %v", len(got), err)
		}
		if i > 0 && i < 19 && &got[0] != &last[0] {
			t.Errorf("list %d: an unchanged list is another slice", i)
		}
		last = got
		for _, c := range got {
			switch was := first[c.ID]; {
			case i == 0:
				first[c.ID] = c
			case i == 19 && c.ID == changed && (c == was || c.State != StateExited || was.State != StateRunning):
				t.Errorf("%s: %+v, was %+v", c.ID, c, was)
			case (c == was) == (i == 19 && c.ID == changed):
				t.Errorf("list %d: %s: the same value: %t", i, c.ID, c == was)
			}
		}
	}
}

// TestTakeDropped: what ran in one list and is not in the next one is returned once; not what had ended before, nor
// what is listed as ended.
func TestTakeDropped(t *testing.T) {
	model := fakeruntime.New(fakeruntime.Options{Seed: 1})
	model.FillPods(2, 2)
	_, list := model.Snapshot()
	list[0].State = runtimeapi.ContainerState_CONTAINER_EXITED
	r := containerKind().reader()
	for _, tt := range []struct {
		list, want []*runtimeapi.Container
	}{{list: list}, {list: list[2:3], want: []*runtimeapi.Container{list[1], list[3]}}, {list: list[2:3]}, {want: list[2:3]}, {list: list}} {
		b, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: tt.list})
		must.Do(t, err)
		_, err = read(r, b)
		must.Do(t, err)
		want := map[string]bool{}
		for _, c := range tt.want {
			want[c.Id] = true
		}
		got := map[string]bool{}
		for _, e := range r.takeDropped() {
			got[e.ID] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("dropped %v, want %v", got, want)
		}
	}
}

// TestAge: an entry is as old as the runtime says, and of no known age where it gives a moment before the epoch, as
// containerd 1.6 does for the zero time.
func TestAge(t *testing.T) {
	now := time.Now()
	sandbox := &runtimeapi.PodSandbox{CreatedAt: now.Add(-time.Minute).UnixNano()}
	age, isKnown := sandboxOf(sandbox).Age(now)
	must.Equal(t, age, time.Minute, "age")
	must.Equal(t, isKnown, true, "with a moment")
	sandbox.CreatedAt = time.Time{}.UnixNano()
	_, isKnown = sandboxOf(sandbox).Age(now)
	must.Equal(t, isKnown, false, "without one")
}

// TestHasBegun: a container that is known has begun, and a sandbox while it is ready, by an answer.
func TestHasBegun(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(1, 1)
	c, _ := clientOf(t, rt, Options{})
	containers, err := c.ListContainers(t.Context())
	must.Do(t, err)
	sandbox := &Entry{ID: containers[0].SandboxID, Sandbox: true}
	must.Equal(t, c.HasBegun(t.Context(), containers[0]), true, "a container")
	must.Equal(t, c.HasBegun(t.Context(), sandbox), true, "a sandbox")
	rt.StopSandbox(sandbox.ID)
	must.Equal(t, c.HasBegun(t.Context(), sandbox), false, "a sandbox that is not ready")
	must.Equal(t, c.HasBegun(t.Context(), &Entry{ID: "none"}), false, "a container that nobody knows")
}

// TestArriving: a large list is seen to come in; small answers are not, and hundreds about
// single containers, which are asked for while a list hangs, do not look like a list.
func TestArriving(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(200, 3)
	other, _ := clientOf(t, rt, Options{})
	list, err := other.ListContainers(t.Context())
	must.Do(t, err)
	c, _ := clientOf(t, rt, Options{})
	for _, container := range list {
		must.Do(t, c.Answers(t.Context(), container))
	}
	if at := c.Arriving(); !at.IsZero() {
		t.Errorf("%d answers about single containers: much arrived at %s", len(list), at)
	}
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Arriving().IsZero() {
		t.Error("a list of half a megabyte did not arrive")
	}
}
