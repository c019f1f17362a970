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
	r.sandboxes.next(list, err, func(s *cri.Sandbox) string { return s.ID })
	return list, err
}

func (r *telling) ListContainers(ctx context.Context) ([]*cri.Container, error) {
	list, err := r.script.ListContainers(ctx)
	r.containers.next(list, err, func(c *cri.Container) string { return c.ID })
	if r.sandboxes.ch.Before != nil && r.containers.ch.Before != nil {
		r.known++
	}
	return list, err
}

func (r *telling) SandboxChanges() cri.Changes[cri.Sandbox]     { return r.sandboxes.ch }
func (r *telling) ContainerChanges() cri.Changes[cri.Container] { return r.containers.ch }

type told[T any] struct {
	ch     cri.Changes[T]
	before []*T
	odd    bool // the list before held an id twice
}

func (d *told[T]) next(list []*T, err error, id func(*T) string) {
	before, last, odd := map[string]*T{}, d.ch.List, d.odd
	for _, v := range d.before {
		before[id(v)] = v
	}
	d.ch, d.before, d.odd = cri.Changes[T]{}, nil, false
	if err != nil {
		return
	}
	d.ch.List, d.before = &cri.ListID{}, slices.Clone(list)
	now := map[string]*T{}
	for _, v := range list {
		if old := before[id(v)]; old != v {
			d.ch.Items = append(d.ch.Items, cri.Change[T]{Old: old, New: v})
		}
		d.odd = d.odd || id(v) == "" || now[id(v)] != nil
		now[id(v)] = v
	}
	for _, v := range d.before {
		delete(before, id(v))
	}
	for _, v := range before {
		d.ch.Items = append(d.ch.Items, cri.Change[T]{Old: v})
	}
	if !odd && !d.odd {
		d.ch.Before = last
	}
}
