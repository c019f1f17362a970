package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// soak makes plegd relist back to back and shows, ten times on the way, what it
// holds: none of it may grow.
func soak(ctx context.Context, cfg config, pods, relists int) error {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const churn = 0.01
	socket := filepath.Join(dir, "runtime.sock")
	server, err := startRuntimeChild(ctx, socket, pods, cfg.containers, churn)
	if err != nil {
		return err
	}
	defer server.close()
	c, err := startChild(ctx, relistName, "-socket", socket)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Printf("%d relists of %d pods back to back, %g %% of them changing before each\n", relists, pods, churn*100)
	fmt.Printf("%8s %10s %10s %11s %5s %12s\n", "relists", "heap KiB", "rss MiB", "goroutines", "fds", "cpu ms each")
	for done, i := 0, 1; i <= 10; i++ {
		chunk := relists*i/10 - done
		if chunk == 0 {
			continue
		}
		r, err := c.round(order{Relists: chunk, Collect: true})
		if err != nil {
			return err
		}
		done += chunk
		fmt.Printf("%8d %10.0f %10.1f %11d %5d %12.3f\n", done, float64(r.Heap)/1024, float64(r.RSS)/(1<<20), r.Goroutines, r.FDs, ms(r.CPU)/float64(chunk))
	}
	return nil
}
