package main

import (
	"cmp"
	"slices"
	"time"
)

// round is what a subject reports of one round.
type round struct {
	Relists int
	// CPU is user and system time of the subject's process over the round.
	CPU time.Duration
	// Latencies are the relists' times.
	Latencies []time.Duration
	// AllocBytes and AllocObjects are the heap allocations of the round.
	AllocBytes, AllocObjects uint64
	// Bytes is the size of the last two answers together.
	Bytes int
	// RSS is the resident set, Heap what is in use on the heap after a
	// collection, in bytes.
	RSS  int64
	Heap uint64
	// Goroutines and FDs are the process's.
	Goroutines, FDs int
	// Pods and Events are what the subject counted: how it is known that all
	// subjects did the same work. The floor counts nothing.
	Pods, Events int
}

// result is all the rounds of a subject.
type result []round

func (r result) allocBytes() float64 {
	return median(r, func(x round) float64 { return float64(x.AllocBytes) / float64(x.Relists) })
}

func (r result) allocObjects() float64 {
	return median(r, func(x round) float64 { return float64(x.AllocObjects) / float64(x.Relists) })
}

func median[T cmp.Ordered](r result, of func(round) T) T {
	values := make([]T, len(r))
	for i, x := range r {
		values[i] = of(x)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
