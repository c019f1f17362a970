package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// config is one row group of the table.
type config struct {
	pods, containers, rounds int
	// relists is how many a round holds; 0 lets the number of pods decide.
	relists int
	churn   float64
	// resident is how many relists at 1 Hz come before the resident memory is
	// read.
	resident int
	// profiles is the directory for the subjects' CPU profiles, "" for none.
	profiles string
}

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
	// Shims are those that the evidence has found.
	Shims int
	// Goroutines and FDs are the process's.
	Goroutines, FDs int
	// Pods and Events are what the subject counted: how it is known that all
	// subjects did the same work. The floor counts nothing.
	Pods, Events int
}

// result is all the rounds of a subject.
type result []round

func (r result) cpu() time.Duration {
	return median(r, func(x round) time.Duration { return x.CPU / time.Duration(x.Relists) })
}

func (r result) latency(q float64) time.Duration {
	var all []time.Duration
	for _, x := range r {
		all = append(all, x.Latencies...)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

func (r result) allocBytes() float64 {
	return median(r, func(x round) float64 { return float64(x.AllocBytes) / float64(x.Relists) })
}

func (r result) allocObjects() float64 {
	return median(r, func(x round) float64 { return float64(x.AllocObjects) / float64(x.Relists) })
}

func (r result) bytes() int { return r[len(r)-1].Bytes }
func (r result) rss() int64 { return r[len(r)-1].RSS }

func median[T cmp.Ordered](r result, of func(round) T) T {
	values := make([]T, len(r))
	for i, x := range r {
		values[i] = of(x)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// compare runs all subjects against one runtime of the size given.
func compare(ctx context.Context, cfg config) (map[string]result, error) {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "runtime.sock")

	server, err := startRuntimeChild(ctx, socket, cfg.pods, cfg.containers, cfg.churn)
	if err != nil {
		return nil, err
	}
	defer server.close()

	children := map[string]*process{}
	for _, name := range subjects() {
		args := []string{"-socket", socket}
		if cfg.profiles != "" {
			args = append(args, "-cpuprofile", filepath.Join(cfg.profiles, fmt.Sprintf("%s-%d.pprof", name, cfg.pods)))
		}
		c, err := startChild(ctx, name, args...)
		if err != nil {
			return nil, err
		}
		defer c.close()
		children[name] = c
	}

	results := map[string]result{}
	n := cmp.Or(cfg.relists, relistsPerRound(cfg.pods))
	for i := range cfg.rounds {
		for j := range subjects() {
			// Another order in each round: nobody always runs after the same one.
			name := subjects()[(i+j)%len(subjects())]
			r, err := children[name].round(order{Relists: n})
			if err != nil {
				return nil, err
			}
			results[name] = append(results[name], r)
		}
	}
	if cfg.resident > 0 {
		if err := atOneHertz(children, results, cfg.resident); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// atOneHertz lets all subjects relist once a second, at the same time, and puts
// what they hold then into their last round.
func atOneHertz(children map[string]*process, results map[string]result, n int) error {
	var all errgroup.Group
	for name, c := range children {
		last := &results[name][len(results[name])-1]
		all.Go(func() error {
			r, err := c.round(order{Relists: n, Period: time.Second})
			last.RSS = r.RSS
			return err
		})
	}
	return all.Wait()
}
