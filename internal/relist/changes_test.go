package relist

import (
	"context"
	"slices"
	"testing"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// FuzzRelistTold is FuzzRelistDiff with a runtime that tells what has changed:
// the records must come out the same.
func FuzzRelistTold(f *testing.F) {
	fuzzcorpus.Add(f)
	for seed := range byte(24) {
		f.Add(noise(uint32(seed)*2654435761+1, 300))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		h := newToldHistory(t, program)
		for range 2 + h.next(12) {
			h.change()
			h.relist()
		}
		h.end()
	})
}

// TestToldLongHistory is one long history of many pods, in which most relists
// know what has changed.
func TestToldLongHistory(t *testing.T) {
	known := 0
	for seed := range uint32(20) {
		h := newToldHistory(t, noise(seed+1, 6000))
		for len(h.program) > 0 {
			h.change()
			h.relist()
			if t.Failed() {
				return
			}
		}
		h.end()
		rt := h.loop.rt.(*telling)
		known += rt.known
	}
	if known < 100 {
		t.Errorf("the changes were known %d times: this tests nothing", known)
	}
}

func noise(x uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x >> 11)
	}
	return b
}

func newToldHistory(t *testing.T, program []byte) *history {
	h := newHistory(t, program)
	h.loop = New(&telling{script: h.rt}, Config{InspectConcurrency: 1, InspectTimeout: 1 << 40, EventCapacity: 100_000}, h.seen)
	return h
}

// telling tells what has changed as package cri does, worked out from the whole
// lists.
type telling struct {
	*script
	sandboxes  told[cri.Sandbox]
	containers told[cri.Container]
	known      int
}

func (r *telling) ListPodSandbox(ctx context.Context) ([]*cri.Sandbox, error) {
	list, err := r.script.ListPodSandbox(ctx)
	r.sandboxes.next(list, err, func(s *cri.Sandbox) (string, int) { return s.ID, s.Slot })
	return list, err
}

func (r *telling) ListContainers(ctx context.Context) ([]*cri.Container, error) {
	list, err := r.script.ListContainers(ctx)
	r.containers.next(list, err, func(c *cri.Container) (string, int) { return c.ID, c.Slot })
	if r.sandboxes.ch.Before != 0 && r.containers.ch.Before != 0 {
		r.known++
	}
	return list, err
}

func (r *telling) SandboxChanges() cri.Changes[cri.Sandbox]     { return r.sandboxes.ch }
func (r *telling) ContainerChanges() cri.Changes[cri.Container] { return r.containers.ch }

type told[T any] struct {
	ch     cri.Changes[T]
	last   uint64 // 0: nothing can be told of the difference to the last list
	number uint64
	before []*T
}

func (d *told[T]) next(list []*T, err error, of func(*T) (string, int)) {
	before, last := d.before, d.last
	d.ch, d.last, d.before = cri.Changes[T]{}, 0, nil
	if err != nil {
		return
	}
	d.number++
	d.ch.List = d.number
	ids, slots := map[string]int{}, map[int]string{}
	for _, v := range list {
		id, slot := of(v)
		_, again := ids[id]
		if _, taken := slots[slot]; again || taken || slot < 0 {
			return // odd
		}
		ids[id], slots[slot] = slot, id
	}
	d.last, d.before = d.number, slices.Clone(list)
	d.ch.Before = last
	for _, v := range before {
		id, slot := of(v)
		if now, listed := ids[id]; listed && now != slot {
			d.ch.Before = 0 // an id keeps its slot
		} else if other, taken := slots[slot]; taken && other != id {
			d.ch.Before = 0 // and a slot is given anew only when it was free
		} else if !listed {
			d.ch.Removed = append(d.ch.Removed, v)
		}
	}
	for _, v := range list {
		if !slices.Contains(before, v) {
			d.ch.Changed = append(d.ch.Changed, v)
		}
	}
}
