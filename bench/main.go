// Command bench measures what one relist costs the process that makes it:
//
//	floor   the bytes of both lists received and not decoded
//	floor+  the same with the windows of the connection of plegd
//	peer    both lists decoded by the generated client, grouped by pod and
//	        compared with the last ones in the straightforward way
//	plegd   plegd's own connection and relist loop
//
// All talk to one fake runtime, which marshals each answer again and in
// another order, over a unix socket. Runtime and subjects are processes of their
// own, so that a subject's CPU time is its own and one's garbage is not
// collected at another's expense. The subjects take turns in short rounds, so
// that a machine that speeds up or slows down does so for all of them.
//
// The floor and the peer connect with the kubelet's options.
//
// What counts are the ratios of one run; times are this machine's.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	runtime.LockOSThread() // the children die with this thread
	cfg := config{}
	mode := flag.String("mode", "relist", "relist: the table; soak: a day of relists back to back; daemon: plegd run beside a bare peer, at 1 Hz; evidence: its sources of evidence alone beside one; runtime: all of them on a runtime that is there; profile: plegd alone")
	sizes := flag.String("pods", "", "numbers of `pods`, separated by commas")
	churns := flag.String("churn", "0,0.01,0.1,0.6", "`fractions` of the pods that change before each relist, separated by commas")
	flag.IntVar(&cfg.containers, "containers", 2, "containers in each pod")
	flag.IntVar(&cfg.rounds, "rounds", 9, "rounds of each subject; the table shows medians over them")
	flag.IntVar(&cfg.resident, "resident", 10, "relists at 1 Hz, all subjects at once, after which the resident memory is read; 0: none")
	flag.StringVar(&cfg.profiles, "profiles", "", "`directory` for CPU profiles of the subjects")
	svg := flag.String("svg", "", "`file` for the plot of cost against pods")
	relists := flag.Int("relists", 86400, "soak, profile: how many relists")
	plegd := flag.String("plegd", "build/plegd", "daemon, runtime: the `binary`")
	window := flag.Duration("window", time.Minute, "daemon, evidence, runtime: how long")
	socket := flag.String("socket", "", "runtime: its `path`")
	pid := flag.Int("pid", 0, "runtime: its `process`, whose CPU time is read")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := fmt.Errorf("-mode: %q is none of relist, soak, daemon, evidence, runtime, profile", *mode)
	switch *mode {
	case "relist":
		err = table(ctx, cfg, cmp.Or(*sizes, "10,110,500,2000,5000"), *churns, *svg)
	case "soak":
		err = soak(ctx, cfg, cmp.Or(*sizes, "110"), *relists)
	case "daemon":
		err = daemons(ctx, cfg, cmp.Or(*sizes, "110,5000"), *plegd, *window)
	case "evidence":
		err = evidenceCost(ctx, cfg, cmp.Or(*sizes, "110"), *window)
	case "profile":
		err = profile(ctx, cfg, cmp.Or(*sizes, "5000"), *relists)
	case "runtime":
		err = against(ctx, cfg, *socket, *pid, *plegd, *window)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// numbers reads a list of numbers.
func numbers(flag, list string) ([]float64, error) {
	var out []float64
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: %q is not a number", flag, field)
		}
		out = append(out, n)
	}
	return out, nil
}

func table(ctx context.Context, cfg config, sizes, churns, svg string) error {
	pods, err := numbers("-pods", sizes)
	if err != nil {
		return err
	}
	changing, err := numbers("-churn", churns)
	if err != nil {
		return err
	}
	fmt.Printf("One relist: both lists, %d containers a pod; medians of %d rounds in turns; %s, %d cores, GOMAXPROCS %d.\n",
		cfg.containers, cfg.rounds, runtime.Version(), runtime.NumCPU(), runtime.GOMAXPROCS(0))
	fmt.Printf("cpu: user and system time of the client's process. Ratios of cpu in brackets. rss: resident after %d relists at 1 Hz.\n", cfg.resident)
	for _, churn := range changing {
		cfg.churn = churn
		more := ""
		if churn > 0 {
			more = " (a dead container beside each; above 2500 pods one container each)"
		}
		fmt.Printf("\n%g %% of the pods changing%s\n%6s %9s  %-6s %8s %8s %8s %8s %8s %10s %9s %8s\n",
			churn*100, more, "pods", "answers", "", "cpu ms", "/ floor", "/ peer", "p50 ms", "p99 ms", "alloc kB", "objects", "rss MiB")
		var rows []map[string]result
		for _, n := range pods {
			cfg := cfg
			cfg.pods = int(n)
			if churn > 0 && cfg.pods*cfg.containers > 5000 {
				// Each has a dead one beside it, and 16 MiB is an answer's limit.
				cfg.containers = max(1, 5000/cfg.pods)
			}
			results, err := compare(ctx, cfg)
			if err != nil {
				return err
			}
			rows = append(rows, results)
			floor, peer := results["floor"].cpu(), results["peer"].cpu()
			for _, name := range subjects() {
				r := results[name]
				fmt.Printf("%6d %6.0f kB  %-6s %8.3f %8s %8s %8.2f %8.2f %10.1f %9.0f %8.1f\n",
					cfg.pods, float64(r.bytes())/1000, name, ms(r.cpu()), ratio(r.cpu(), floor), ratio(r.cpu(), peer),
					ms(r.latency(0.50)), ms(r.latency(0.99)), r.allocBytes()/1000, r.allocObjects(), float64(r.rss())/(1<<20))
			}
		}
		if churn == 0 {
			summary(pods, rows)
			if svg != "" {
				if err := os.WriteFile(svg, plot(pods, rows), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func ms(d time.Duration) float64      { return d.Seconds() * 1000 }
func ratio(a, b time.Duration) string { return fmt.Sprintf("(%.2f)", float64(a)/float64(b)) }

// relistsPerRound keeps a round short: all sizes take a few seconds each.
func relistsPerRound(pods int) int { return max(8, 20000/(pods+60)) }
