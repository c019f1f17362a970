package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// against measures what a runtime that is there spends because of each client: the
// CPU time of its process and its connections, at 1 Hz, where plegd is the whole
// daemon with its probes and its Status.
func against(ctx context.Context, cfg config, socket string, pid int) error {
	if cpuOf(pid) == 0 {
		return fmt.Errorf("-pid: there is no process %d whose CPU time can be read; say which one serves %s", pid, socket)
	}
	idle, err := spent(ctx, cfg, pid)
	if err != nil {
		return err
	}
	fmt.Printf("CPU milliseconds a second at 1 Hz, for %s each; the runtime without a client: %.2f\n", cfg.window, idle.runtime)
	fmt.Printf("%-7s %8s %12s %12s\n", "client", "own", "the runtime", "descriptors")
	for _, name := range []string{floorName, plainName, relistName, probesName, "plegd"} {
		own, stop, err := startClient(ctx, cfg, name, socket)
		if err != nil {
			return err
		}
		if err := wait(ctx, 10*time.Second); err != nil {
			return err
		}
		before, start := cpuOf(own), time.Now()
		s, err := spent(ctx, cfg, pid)
		used := ms(cpuOf(own)-before) / time.Since(start).Seconds()
		stop()
		if err != nil {
			return err
		}
		fmt.Printf("%-7s %8.2f %12.2f %12d\n", name, used, s.runtime-idle.runtime, s.fds-idle.fds)
	}
	return nil
}

// startClient starts plegd or a child that makes what it does once a second.
func startClient(ctx context.Context, cfg config, name, socket string) (pid int, stop func(), err error) {
	if name == "plegd" {
		d, err := startDaemon(ctx, cfg.plegd, socket)
		if err != nil {
			return 0, nil, err
		}
		return d.pid(), d.stop, nil
	}
	c, err := startChild(ctx, name, "-socket", socket)
	if err != nil {
		return 0, nil, err
	}
	return c.cmd.Process.Pid, c.close, c.enc.Encode(order{Relists: 1 << 30, Period: time.Second})
}

// cost is what a runtime's process has spent in a while.
type cost struct {
	runtime float64 // CPU milliseconds a second
	fds     int     // at its end
}

func spent(ctx context.Context, cfg config, pid int) (cost, error) {
	before, start := cpuOf(pid), time.Now()
	if err := wait(ctx, cfg.window); err != nil {
		return cost{}, err
	}
	used := ms(cpuOf(pid)-before) / time.Since(start).Seconds()
	fds, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	return cost{used, len(fds)}, err
}
