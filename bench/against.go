package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// watched is a runtime that is there: its process, the URL of its metrics, and its log.
type watched struct {
	pid          int
	metrics, log string
}

// against measures what a runtime that is there spends because of each client, at 1 Hz,
// where plegd is the whole daemon with its probes and its Status.
func against(ctx context.Context, cfg config, socket string, rt watched) error {
	if cpuOf(rt.pid) == 0 {
		return fmt.Errorf("-pid: there is no process %d whose CPU time can be read; say which one serves %s", rt.pid, socket)
	}
	if rt.metrics == "" || rt.log == "" {
		return errors.New("-metrics, -log: they are needed, too; say where the runtime serves its metrics and what file it logs to")
	}
	idle, err := rt.spent(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Printf("At 1 Hz, for %s each. own: the client's CPU milliseconds a second. The others are the runtime's, less what it spends without a client: CPU milliseconds, KiB and objects allocated a second; descriptors; log lines a minute.\n", cfg.window)
	line := func(name, own string, c cost) {
		fmt.Printf("%-8s %7s %7.2f %9.0f %9.0f %12d %10.1f\n", name, own, c.runtime, c.bytes/1024, c.objects, c.fds, c.lines*60)
	}
	fmt.Printf("%-8s %7s %7s %9s %9s %12s %10s\n", "client", "own", "CPU", "KiB", "objects", "descriptors", "log lines")
	line("(none)", "", idle)
	for _, name := range []string{floorName, plainName, relistName, probesName, "plegd"} {
		own, stop, err := startClient(ctx, cfg, name, socket)
		if err != nil {
			return err
		}
		if err := wait(ctx, 10*time.Second); err != nil {
			return err
		}
		before, start := cpuOf(own), time.Now()
		s, err := rt.spent(ctx, cfg)
		used := ms(cpuOf(own)-before) / time.Since(start).Seconds()
		stop()
		if err != nil {
			return err
		}
		line(name, fmt.Sprintf("%.2f", used), cost{s.runtime - idle.runtime, s.bytes - idle.bytes, s.objects - idle.objects, s.lines - idle.lines, s.fds - idle.fds})
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
	runtime               float64 // CPU milliseconds a second
	bytes, objects, lines float64 // allocated and logged a second
	fds                   int     // at its end
}

// spent measures for a window.
func (rt watched) spent(ctx context.Context, cfg config) (cost, error) {
	first, err := rt.counters(ctx)
	if err != nil {
		return cost{}, err
	}
	before, err := rt.counters(ctx)
	if err != nil {
		return cost{}, err
	}
	// Asking for the counters allocates: as much as between the first two, once more.
	before.bytes += before.bytes - first.bytes
	before.objects += before.objects - first.objects
	cpu, start := cpuOf(rt.pid), time.Now()
	if err := wait(ctx, cfg.window); err != nil {
		return cost{}, err
	}
	used, seconds := ms(cpuOf(rt.pid)-cpu), time.Since(start).Seconds()
	after, err := rt.counters(ctx)
	if err != nil {
		return cost{}, err
	}
	fds, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(rt.pid), "fd"))
	return cost{used / seconds, (after.bytes - before.bytes) / seconds, (after.objects - before.objects) / seconds, (after.lines - before.lines) / seconds, len(fds)}, err
}

// counters reads what the runtime has allocated and logged since its start.
func (rt watched) counters(ctx context.Context) (c cost, err error) {
	log, err := os.ReadFile(rt.log)
	if err != nil {
		return c, err
	}
	c.lines = float64(bytes.Count(log, []byte("\n")))
	text, err := get(ctx, http.DefaultClient, rt.metrics, "text/plain")
	if err != nil {
		return c, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return c, fmt.Errorf("-metrics: %s: %w", rt.metrics, err)
	}
	// Of client_golang's Go collector.
	for name, to := range map[string]*float64{"go_memstats_alloc_bytes_total": &c.bytes, "go_memstats_mallocs_total": &c.objects} {
		m := families[name].GetMetric()
		if len(m) != 1 {
			return c, fmt.Errorf("-metrics: %s has no %s", rt.metrics, name)
		}
		*to = m[0].GetCounter().GetValue()
	}
	return c, nil
}
