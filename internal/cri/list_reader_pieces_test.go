package cri

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// TestListReaderInPieces: where the transport cut an answer does not matter.
func TestListReaderInPieces(t *testing.T) {
	t.Run("sandboxes", func(t *testing.T) { readInPieces(t, sandboxKind(), oddSandboxes(t)) })
	t.Run("containers", func(t *testing.T) { readInPieces(t, containerKind(), oddContainers(t)) })
}

func readInPieces[T any](t *testing.T, k listKind[T], lists map[string][]byte) {
	for name, b := range longHeaders(lists["one"]) {
		lists[name] = b
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		b := lists[name]
		oracle := newRememberer(k)
		fresh, freshErr := k.list(b)
		_, _ = oracle.read(b)
		warm, warmErr := oracle.read(b)
		sizes := []int{1, 2, 3, 7, 16, 20, 33, 64, len(b) / 2, len(b) - 1, len(b)}
		if strings.HasPrefix(name, "header") {
			for size := range len(b) { // every one
				sizes = append(sizes, size)
			}
		}
		for _, size := range sizes {
			size = max(1, size)
			r := k.reader()
			inPieces(t, name, r, b, size, fresh, freshErr)
			r = k.reader()
			_, _ = read(r, b)
			inPieces(t, name+", known already", r, b, size, warm, warmErr)
		}
	}
}

func inPieces[T any](t *testing.T, name string, r *listReader[T], b []byte, size int, want []T, wantErr error) {
	t.Helper()
	got, err := r.read(pieces(b, size))
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%s, %x in pieces of %d: %v, want %v", name, b, size, err, wantErr)
	}
	if diff := cmp.Diff(want, values(got)); err == nil && diff != "" {
		t.Fatalf("%s, %x in pieces of %d (-want +got):\n%s", name, b, size, diff)
	}
	itemsAddUp(t, r)
}

// TestListReaderOddFieldsBetweenManyItems: what is put together from pieces stays
// as long as items lie in it.
func TestListReaderOddFieldsBetweenManyItems(t *testing.T) {
	for _, every := range []int{1, 7, 23, 24, 27} {
		var parts [][]byte
		for i := range 120 {
			c := someContainer()
			c.Id = strings.Repeat(string(rune('a'+i%26)), 1+i/26)
			parts = append(parts, listOf(encode(t, c)))
			if i%every == every-1 {
				parts = append(parts, varint(1, uint64(i)), group(9))
			}
		}
		b := join(parts...)
		for _, size := range []int{1, 100, 333, 1000, 16384, len(b)} {
			inPieces(t, "many", newContainerReader(newSandboxReader()), b, size, must(containerKind().list(b)), nil)
		}
		sameAsRememberer(t, containerKind(), b, b[:len(b)/2], b)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestListReaderForgetsBesideDuplicates: an id that is listed twice does not
// stand for one that is gone.
func TestListReaderForgetsBesideDuplicates(t *testing.T) {
	item := func(id string) []byte { c := someContainer(); c.Id = id; return encode(t, c) }
	a, b, c := item("a"), item("b"), item("c")
	sameAsRememberer(t, containerKind(), listOf(a, b, c), listOf(a, a, b), listOf(a, b, b, b), listOf(a, a, a), listOf(b, c), listOf(a, b, c))
}

// longHeaders are lists whose numbers and lengths take more bytes than they
// need, up to the 10 that a varint may have.
func longHeaders(list []byte) map[string][]byte {
	out := map[string][]byte{}
	_, _, tag := protowire.ConsumeTag(list)
	length, n := protowire.ConsumeVarint(list[tag:])
	rest := list[tag+n:]
	for _, sizes := range [][2]int{{2, 1}, {1, 3}, {5, 5}, {6, 10}, {10, 6}, {10, 10}} {
		b := append(long(1<<3|2, sizes[0]), long(length, sizes[1])...)
		b = slices.Concat(list, b, rest, list)
		out["header of "+string(rune('0'+sizes[0]-1))+"+1 and "+string(rune('0'+sizes[1]-1))+"+1 bytes"] = b
	}
	return out
}

// long is a varint of a length of its own choice.
func long(v uint64, bytes int) []byte {
	var b []byte
	for range bytes - 1 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// FuzzListReaderLongLists makes answers of more items than are taken at a time
// out of the bytes, and cuts them anywhere.
func FuzzListReaderLongLists(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte{})
	f.Add([]byte("\x01\x30\x10many items, some of them odd, in several pieces"))
	f.Add([]byte("\x00\x4f\x01abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
	f.Fuzz(func(t *testing.T, program []byte) {
		p := script(program)
		containers := p.next(2) == 1
		answers := make([][]byte, 2+p.next(2))
		for i := range answers {
			answers[i] = p.longList(containers)
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

// longList has up to 80 items of as many ids, and a few that may have any other.
func (p *script) longList(containers bool) []byte {
	var items [][]byte
	for i := range p.next(81) {
		id := text(1, "id-"+string(rune('A'+i)))
		switch p.next(12) {
		case 0:
			continue // it is not in this one
		case 1:
			items = append(items, listOf(p.item(containers)))
		case 2:
			items = append(items, p.odd())
		case 3: // one again
			if len(items) > 0 {
				items = append(items, items[p.next(len(items))])
			}
		}
		rest := join(text(2, "\x0a\x01n"), varint(3, uint64(p.next(2))), varint(4, 1), entry(5, "k", "v"))
		if containers {
			rest = join(text(2, "s"), text(3, "\x0a\x01n"), text(4, "\x0a\x01i"), varint(6, uint64(p.next(2))), entry(8, "io.kubernetes.pod.uid", "u1"))
		}
		items = append(items, listOf(join(id, rest)))
	}
	if n := p.next(80); len(items) > 0 { // another order
		n %= len(items)
		items = slices.Concat(items[n:], items[:n])
	}
	b := join(items...)
	if p.next(16) == 1 {
		b = b[:len(b)-min(len(b), p.next(50))]
	}
	return b
}
