package cri

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
)

// TestListReaderReadsOddLists reads every odd list with a fresh reader, and
// every odd item after every other: the generated decoder is right.
func TestListReaderReadsOddLists(t *testing.T) {
	t.Run("sandboxes", func(t *testing.T) { readOddLists(t, sandboxKind(), oddSandboxes(t)) })
	t.Run("containers", func(t *testing.T) { readOddLists(t, containerKind(), oddContainers(t)) })
}

func readOddLists[T any](t *testing.T, k listKind[T], lists map[string][]byte) {
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		t.Run(name, func(t *testing.T) {
			sameAsDecoder(t, k, lists[name])
			sameAsRememberer(t, k, lists["one"], lists[name], lists["one"], lists[name])
			if !strings.HasPrefix(name, "item: ") {
				return
			}
			for then, b := range lists {
				if strings.HasPrefix(then, "item: ") {
					t.Log("then", then) // shown with a failure
					sameAsRememberer(t, k, lists[name], b, lists[name])
				}
			}
		})
	}
}

// sameAsDecoder compares a fresh reader with the generated decoder.
func sameAsDecoder[T any](t testing.TB, k listKind[T], b []byte) {
	t.Helper()
	want, wantErr := k.list(b)
	got, err := read(k.reader(), b)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("read %x: %v; the generated decoder: %v", b, err, wantErr)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(want, values(got)); diff != "" {
		t.Fatalf("read %x (- the generated decoder, + the reader):\n%s", b, diff)
	}
}

// sameAsRememberer compares one reader, over several answers, with the
// generated decoder and the one rule on top of it.
func sameAsRememberer[T any](t testing.TB, k listKind[T], answers ...[]byte) {
	t.Helper()
	r, inPieces, oracle := k.reader(), k.reader(), newRememberer(k)
	var before []*T
	for i, b := range answers {
		want, wantErr := oracle.read(b)
		got, err := read(r, b)
		if err == nil {
			sameChanges(t, k.id, before, got, r.changes)
			before = slices.Clone(got)
		} else {
			before = nil
		}
		size := 1 + len(b)*(i+1)/(len(answers)+3)
		again, againErr := inPieces.read(pieces(b, size))
		if (againErr != nil) != (err != nil) {
			t.Fatalf("answer %d, %x: %v; in pieces of %d: %v", i, b, err, size, againErr)
		}
		if diff := cmp.Diff(values(got), values(again)); diff != "" {
			t.Fatalf("answer %d, %x (-whole +in pieces of %d):\n%s", i, b, size, diff)
		}
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("answer %d, %x: %v; want %v", i, b, err, wantErr)
		}
		if err == nil {
			if diff := cmp.Diff(want, values(got)); diff != "" {
				t.Fatalf("answer %d, %x (-want +got):\n%s", i, b, diff)
			}
		}
		if len(r.items) != len(oracle.known) {
			t.Fatalf("answer %d, %x: %d items are remembered, want %d", i, b, len(r.items), len(oracle.known))
		}
		itemsAddUp(t, r)
	}
}

// pieces cuts an answer as the transport might.
func pieces(b []byte, size int) mem.BufferSlice {
	var out mem.BufferSlice
	for piece := range slices.Chunk(b, size) {
		out = append(out, mem.SliceBuffer(slices.Clip(piece)))
	}
	return out
}

// sameChanges checks what a reader says has changed since the list before, which
// is nil if there was none or it could not be read.
func sameChanges[T any](t testing.TB, id func(*T) string, before, now []*T, got Changes[T]) {
	t.Helper()
	if got.Before == nil {
		return
	}
	old, listed := map[string]*T{}, map[string]bool{}
	for _, v := range before {
		old[id(v)] = v
	}
	var want, removed []Change[T]
	for _, v := range now {
		if listed[id(v)] {
			t.Fatalf("%q is listed twice, and the changes are said to be known", id(v))
		}
		listed[id(v)] = true
		if old[id(v)] != v {
			want = append(want, Change[T]{Old: old[id(v)], New: v})
		}
	}
	for _, v := range before {
		if !listed[id(v)] {
			removed = append(removed, Change[T]{Old: v})
		}
	}
	byID := func(a, b Change[T]) int { return strings.Compare(id(a.Old), id(b.Old)) } // they come in any order
	slices.SortFunc(removed, byID)
	items := slices.Clone(got.Items)
	slices.SortFunc(items[min(len(want), len(items)):], byID)
	if !slices.Equal(items, append(want, removed...)) {
		t.Fatalf("changes %+v, want %+v and removed %+v", got.Items, want, removed)
	}
}

// itemsAddUp checks that exactly the items of the last list are remembered.
func itemsAddUp[T any](t testing.TB, r *listReader[T]) {
	t.Helper()
	if r.found != len(r.items) {
		t.Fatalf("%d items of the list are remembered, and %d items", r.found, len(r.items))
	}
	for id, it := range r.items {
		own, _ := r.texts(&it.value)
		if got := *own[0]; got != id || it.list != r.list {
			t.Fatalf("item %q is remembered as %q, of list %d of %d", got, id, it.list, r.list)
		}
	}
}

// TestListReaderErrorSaysWhat: an error names what could not be read.
func TestListReaderErrorSaysWhat(t *testing.T) {
	_, err := read(newContainerReader(newSandboxReader()), []byte{0xff})
	if !errors.Is(err, errWire) {
		t.Errorf("a broken list: %v, want %v", err, errWire)
	}
	if _, err = read(newContainerReader(newSandboxReader()), listOf([]byte{0xff})); err == nil || err.Error() == errWire.Error() {
		t.Errorf("a broken item: %v; want an error that says it is a container's", err)
	}
}
