package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// against measures the subjects on a runtime that is there already, and what
// its process spends because of each: first back to back, then at 1 Hz, where
// plegd is the whole daemon with its probes and its Status.
func against(ctx context.Context, cfg config, socket string, pid int, binary string, window time.Duration) error {
	if cpuOf(pid) == 0 {
		return fmt.Errorf("-pid: there is no process %d whose CPU time can be read; say which one serves %s", pid, socket)
	}
	children := map[string]*process{}
	for _, name := range subjects() {
		c, err := startChild(ctx, name, "-socket", socket)
		if err != nil {
			return err
		}
		defer c.close()
		children[name] = c
	}
	const relists = 50
	results, spent := map[string]result{}, map[string]result{}
	for i := range cfg.rounds {
		for j := range subjects() {
			name := subjects()[(i+j)%len(subjects())]
			before := cpuOf(pid)
			r, err := children[name].round(order{Relists: relists})
			if err != nil {
				return err
			}
			results[name] = append(results[name], r)
			spent[name] = append(spent[name], round{Relists: relists + 1, CPU: cpuOf(pid) - before}) // one warms up
		}
	}
	fmt.Printf("%d pods, one relist, back to back; medians of %d rounds of %d in turns\n", results["peer"][0].Pods, cfg.rounds, relists)
	fmt.Printf("%9s  %-6s %8s %8s %8s %8s %8s %18s\n", "answers", "", "cpu ms", "/ floor", "/ peer", "p50 ms", "p99 ms", "the runtime's ms")
	floor, peer := results["floor"].cpu(), results["peer"].cpu()
	for _, name := range subjects() {
		r := results[name]
		fmt.Printf("%6.0f kB  %-6s %8.3f %8s %8s %8.2f %8.2f %18.2f\n", float64(r.bytes())/1000, name, ms(r.cpu()), ratio(r.cpu(), floor), ratio(r.cpu(), peer),
			ms(r.latency(0.50)), ms(r.latency(0.99)), ms(spent[name].cpu()))
	}

	perSecond := func(do func() error) (float64, error) {
		before, start := cpuOf(pid), time.Now()
		err := do()
		return ms(cpuOf(pid)-before) / time.Since(start).Seconds(), err
	}
	wait := func() error {
		select {
		case <-time.After(window):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	idle, err := perSecond(wait)
	if err != nil {
		return err
	}
	withPeer, err := perSecond(func() error {
		_, err := children["peer"].round(order{Relists: int(window.Seconds()), Period: time.Second})
		return err
	})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := startDaemon(ctx, binary, socket, dir)
	if err != nil {
		return err
	}
	defer d.stop()
	withPlegd, err := perSecond(wait)
	if err != nil {
		return err
	}
	fmt.Printf("at 1 Hz for %s each, the runtime's CPU, ms a second: idle %.1f, with the peer %.1f, with %s run %.1f\n", window, idle, withPeer, filepath.Base(binary), withPlegd)
	return nil
}
