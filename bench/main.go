// Command bench measures what plegd costs, beside two clients of the same runtime
// in the same run:
//
//	floor   the bytes of both lists received and not decoded
//	plain   both lists decoded by the generated client, grouped by pod and
//	        compared with the last ones in the straightforward way
//
// and shows where it goes: each part of plegd runs beside them in a process of its
// own. All talk to one fake runtime, which marshals each answer again and in
// another order, over a unix socket, once a second and at the same time.
//
// What counts are the ratios of one run; times are this machine's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// config is what a run is told.
type config struct {
	pods, containers int
	window           time.Duration
	plegd            string
	profile          string
}

func main() {
	if filepath.Base(os.Args[0]) == shimName { // startShims
		select {}
	}
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	runtime.LockOSThread() // the children die with this thread
	cfg := config{}
	mode := flag.String("mode", "table", "table: plegd, its parts and the other clients; latency: from the end of a list to the verdict; faults: plegd's CPU time during faults; runtime: what a runtime that is there spends on each; soak: a day of relists back to back")
	sizes := flag.String("pods", "10,110,500,2000,5000", "table: numbers of `pods`, separated by commas")
	flag.IntVar(&cfg.containers, "containers", 2, "containers in each pod")
	flag.DurationVar(&cfg.window, "window", 30*time.Second, "how long each line is measured")
	flag.StringVar(&cfg.plegd, "plegd", "build/plegd", "the `binary`")
	flag.StringVar(&cfg.profile, "profile", "", "latency: `file` for a CPU profile of the daemon")
	relists := flag.Int("relists", 86400, "soak: how many relists")
	socket := flag.String("socket", "", "runtime: its `path`")
	pid := flag.Int("pid", 0, "runtime: its `process`, whose CPU time is read")
	metrics := flag.String("metrics", "", "runtime: the `URL` of its metrics, which count its allocations")
	log := flag.String("log", "", "runtime: its log `file`, whose lines are counted")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pods, err := numbers(*sizes)
	switch {
	case err != nil:
	case *mode == "table":
		err = table(ctx, cfg, pods)
	case *mode == "latency":
		err = latencies(ctx, cfg, pods)
	case *mode == "faults":
		err = faults(ctx, cfg)
	case *mode == "runtime":
		err = against(ctx, cfg, *socket, watched{*pid, *metrics, *log})
	case *mode == "soak":
		err = soak(ctx, cfg, 110, *relists)
	default:
		err = fmt.Errorf("-mode: %q is none of table, latency, faults, runtime, soak", *mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// numbers reads a list of numbers of pods.
func numbers(list string) ([]int, error) {
	var out []int
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-pods: %q is no number of pods", field)
		}
		out = append(out, n)
	}
	return out, nil
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// wait waits for a while; the error is the context's.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
