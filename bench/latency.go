package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	plegd "github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/exporter"
)

// latencyLimit is how long after the end of a relist its verdict may be published, in
// 99 of 100 relists.
const latencyLimit = 20 * time.Millisecond

// latencies measures the time from the end of a relist to the published verdict,
// while nobody scrapes and while ten do at once.
func latencies(ctx context.Context, cfg config, pods []int) error {
	fmt.Printf("From the end of a relist to the published verdict, ms, for %s each\n%5s %10s %8s %8s %8s\n", cfg.window, "pods", "scrapers", "relists", "p50", "p99")
	for _, n := range pods {
		nd, err := newNode(ctx, n, cfg.containers)
		if err != nil {
			return err
		}
		defer nd.close()
		address, err := freeAddress()
		if err != nil {
			return err
		}
		args := []string{"-socket", nd.socket, "-address", address}
		if cfg.profile != "" {
			args = append(args, "-cpuprofile", cfg.profile)
		}
		c, err := startChild(ctx, daemonName, args...)
		if err != nil {
			return err
		}
		defer c.close()        // it writes its profile when it ends
		if cfg.profile != "" { // without what looks for verdicts
			if err := wait(ctx, cfg.window); err != nil {
				return err
			}
			continue
		}
		for _, scrapers := range []int{0, 10} {
			stop := scrapeAll(ctx, "http://"+address+"/metrics", scrapers)
			r, err := c.round(order{Window: cfg.window})
			stop()
			if err != nil {
				return err
			}
			slices.Sort(r.Latencies)
			at := func(q float64) time.Duration { return r.Latencies[int(q*float64(len(r.Latencies)-1))] }
			fmt.Printf("%5d %10d %8d %8.2f %8.2f\n", n, scrapers, len(r.Latencies), ms(at(.5)), ms(at(.99)))
			if at(.99) > latencyLimit {
				fmt.Printf("Goal missed: p99 is above %s.\n", latencyLimit)
			}
		}
	}
	return nil
}

// scrapeAll scrapes with n scrapers at once, each every 100 ms, until stop.
func scrapeAll(ctx context.Context, url string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = scrape(ctx, http.DefaultClient, url)
				_ = wait(ctx, 100*time.Millisecond)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// daemonName is the whole daemon in a child of the bench, where it can be looked into.
const daemonName = "daemon"

// inProcess is that daemon.
type inProcess struct{ *plegd.Daemon }

func runDaemon(ctx context.Context, socket, address string) (*inProcess, error) {
	plegd.LimitMemory()
	cfg := plegd.DefaultConfig()
	dir, err := os.MkdirTemp("", "plegd-bench-state-")
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(dir) })
	cfg.RuntimeEndpoint, cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses = "unix://"+socket, dir, "", []string{address}
	d, err := plegd.New(cfg, exporter.Build{}, zap.NewNop())
	if err != nil {
		return nil, err
	}
	d.Serve(exporter.Build{})
	go func() { _ = d.Run(ctx) }()
	return &inProcess{d}, wait(ctx, 15*time.Second)
}

// verdicts waits for the verdict of each relist of a while.
func (d *inProcess) verdicts(window time.Duration) (out []time.Duration) {
	var last time.Time
	for start := time.Now(); time.Since(start) < window; time.Sleep(500 * time.Microsecond) {
		now := time.Now()
		s := d.Snapshot(now)
		if r := s.Facts.Relist.Last; r != nil && r.End.After(last) {
			if !last.IsZero() {
				out = append(out, now.Sub(r.End))
			}
			last = r.End
		}
	}
	return out
}

// profileInto writes a CPU profile of this process into a file until stop.
func profileInto(file string) (stop func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}
