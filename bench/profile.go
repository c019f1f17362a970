package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// profile lets plegd alone make relists in the steady state, and leaves its CPU
// profile in a directory.
func profile(ctx context.Context, cfg config, sizes string, relists int) error {
	pods, err := numbers("-pods", sizes)
	if err != nil {
		return err
	}
	if cfg.profiles == "" {
		return fmt.Errorf("-mode profile: say which directory the profile goes into: -profiles")
	}
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, n := range pods {
		socket := filepath.Join(dir, fmt.Sprintf("%g.sock", n))
		server, err := startRuntimeChild(ctx, socket, int(n), cfg.containers, 0)
		if err != nil {
			return err
		}
		defer server.close()
		c, err := startChild(ctx, "plegd", "-socket", socket, "-cpuprofile", filepath.Join(cfg.profiles, fmt.Sprintf("plegd-%g.pprof", n)))
		if err != nil {
			return err
		}
		defer c.close() // it writes the profile when it ends
		r, err := c.round(order{Relists: relists})
		if err != nil {
			return err
		}
		fmt.Printf("%g pods: %d relists, %.2f ms of CPU each\n", n, relists, ms(r.CPU)/float64(relists))
	}
	return nil
}
