package cri

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	got, err := k.reader().read(b)
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
	r, oracle := k.reader(), newRememberer(k)
	for i, b := range answers {
		want, wantErr := oracle.read(b)
		got, err := r.read(b)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("answer %d, %x: %v; want %v", i, b, err, wantErr)
		}
		if err == nil {
			if diff := cmp.Diff(want, values(got), noSlot...); diff != "" {
				t.Fatalf("answer %d, %x (-want +got):\n%s", i, b, diff)
			}
		}
		if len(r.known) != len(oracle.known) {
			t.Fatalf("answer %d, %x: %d items are remembered, want %d", i, b, len(r.known), len(oracle.known))
		}
		slotsAddUp(t, r)
	}
}

// slotsAddUp checks that every slot belongs to one item or is free.
func slotsAddUp[T any](t testing.TB, r *listReader[T]) {
	t.Helper()
	owners := make([]int, r.slots)
	for _, it := range r.known {
		owners[it.slot]++
	}
	for _, slot := range r.free {
		owners[slot]++
	}
	for slot, n := range owners {
		if n != 1 {
			t.Fatalf("slot %d of %d has %d owners; %d items are remembered, free are %v", slot, r.slots, n, len(r.known), r.free)
		}
	}
}

// TestWireReaderErrorSaysWhat: an error names what could not be read.
func TestWireReaderErrorSaysWhat(t *testing.T) {
	_, err := newContainerReader().read([]byte{0xff})
	if !errors.Is(err, errWire) {
		t.Errorf("a broken list: %v, want %v", err, errWire)
	}
	if _, err = newContainerReader().read(listOf([]byte{0xff})); err == nil || err.Error() == errWire.Error() {
		t.Errorf("a broken item: %v; want an error that says it is a container's", err)
	}
}
