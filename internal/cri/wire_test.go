package cri

import (
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
)

// TestWireReaderReadsOddLists reads every odd list with a fresh reader, and
// every odd item after every other: the generated decoder is right.
func TestWireReaderReadsOddLists(t *testing.T) {
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
	if diff := cmp.Diff(want, values(got), noSlot...); diff != "" {
		t.Fatalf("read %x (- the generated decoder, + the reader):\n%s", b, diff)
	}
}

// sameAsRememberer compares one reader, over several answers, with the
// generated decoder and the one rule.
func sameAsRememberer[T any](t testing.TB, k listKind[T], answers ...[]byte) {
	t.Helper()
	r, inPieces, oracle := k.reader(), k.reader(), newRememberer(k)
	var before []*T
	for i, b := range answers {
		want, wantErr := oracle.read(b)
		got, err := read(r, b)
		if err == nil {
			sameChanges(t, before, got, r.changes)
			before = slices.Clone(got)
		} else {
			before = nil // what is known now was never in a list
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
			if diff := cmp.Diff(want, values(got), noSlot...); diff != "" {
				t.Fatalf("answer %d, %x (-want +got):\n%s", i, b, diff)
			}
		}
		if r.known != len(oracle.known) {
			t.Fatalf("answer %d, %x: %d items are remembered, want %d", i, b, r.known, len(oracle.known))
		}
		slotsAddUp(t, r)
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

// sameChanges checks what a reader says has changed: before is the list before,
// nil when there was none or an answer between could not be read.
func sameChanges[T any](t testing.TB, before, now []*T, got Changes[T]) {
	t.Helper()
	if got.Before == 0 {
		return
	}
	var changed, removed []*T
	for _, v := range now {
		if !slices.Contains(before, v) {
			changed = append(changed, v)
		}
	}
	if !slices.Equal(changed, got.Changed) {
		t.Fatalf("changed: %v, want %v", values(got.Changed), values(changed))
	}
	listed := map[int]bool{}
	for _, v := range now {
		if listed[slotOf(v)] {
			t.Fatalf("two items share slot %d, and the changes are said to be known", slotOf(v))
		}
		listed[slotOf(v)] = true
	}
	for _, v := range before {
		if !listed[slotOf(v)] {
			removed = append(removed, v)
		}
	}
	if len(removed) != len(got.Removed) {
		t.Fatalf("removed: %v, want %v", values(got.Removed), values(removed))
	}
	for _, v := range removed {
		if !slices.Contains(got.Removed, v) {
			t.Fatalf("removed: %v, want %v", values(got.Removed), values(removed))
		}
	}
}

func slotOf(v any) int {
	switch v := v.(type) {
	case *Sandbox:
		return v.Slot
	case *Container:
		return v.Slot
	}
	return -1
}

// slotsAddUp checks that every slot belongs to one item or is free.
func slotsAddUp[T any](t testing.TB, r *listReader[T]) {
	t.Helper()
	owners := make([]int, len(r.values))
	known := 0
	for slot, v := range r.values {
		if v == nil {
			continue
		}
		known++
		owners[slot]++
		right := func(s int32) bool { return int(s) == slot }
		if _, ok := r.seen.lookup(r.marks[slot].digest, right); !ok {
			t.Fatalf("slot %d is not to be found by its digest", slot)
		}
		if _, ok := r.ids.lookup(maphash.String(r.seed, r.id(v)), right); !ok {
			t.Fatalf("slot %d is not to be found by its id", slot)
		}
	}
	if known != r.known {
		t.Fatalf("%d items are known, counted were %d", known, r.known)
	}
	for _, slot := range r.free {
		owners[slot]++
	}
	for slot, n := range owners {
		if n != 1 {
			t.Fatalf("slot %d of %d has %d owners; %d items are remembered, free are %v", slot, len(r.values), n, r.known, r.free)
		}
	}
}

// TestWireReaderErrorSaysWhat: an error names what could not be read.
func TestWireReaderErrorSaysWhat(t *testing.T) {
	_, err := read(newContainerReader(), []byte{0xff})
	if !errors.Is(err, errWire) {
		t.Errorf("a broken list: %v, want %v", err, errWire)
	}
	if _, err = read(newContainerReader(), listOf([]byte{0xff})); err == nil || err.Error() == errWire.Error() {
		t.Errorf("a broken item: %v; want an error that says it is a container's", err)
	}
}
