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
	for i, b := range answers {
		want, wantErr := oracle.read(b)
		got, err := read(r, b)
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

// TestListReaderErrorSaysWhat: an error names what could not be read.
func TestListReaderErrorSaysWhat(t *testing.T) {
	_, err := read(newContainerReader(), []byte{0xff})
	if !errors.Is(err, errWire) {
		t.Errorf("a broken list: %v, want %v", err, errWire)
	}
	if _, err = read(newContainerReader(), listOf([]byte{0xff})); err == nil || err.Error() == errWire.Error() {
		t.Errorf("a broken item: %v; want an error that says it is a container's", err)
	}
}
