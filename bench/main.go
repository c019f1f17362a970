// Command bench measures what one relist costs the process that makes it:
//
//	floor  the bytes of both lists received and not decoded
//	peer   both lists decoded by the generated client, grouped by pod and
//	       compared with the last ones in the straightforward way
//	plegd  plegd's own connection and relist loop
//
// All three talk to one fake runtime, which marshals each answer anew and in
// another order, over a unix socket. Runtime and subjects are processes of their
// own, so that a subject's CPU time is its own and one's garbage is not
// collected at another's expense. The subjects take turns in short rounds, so
// that a machine that speeds up or slows down does so for all of them.
//
// What counts are the ratios of one run; times are this machine's.
package main

import (
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
	sizes := flag.String("pods", "10,110,500,2000,5000", "numbers of pods, separated by commas")
	flag.IntVar(&cfg.containers, "containers", 2, "containers in each pod")
	flag.IntVar(&cfg.rounds, "rounds", 9, "rounds of each subject; the table shows medians over them")
	flag.Float64Var(&cfg.churn, "churn", 0, "fraction of the pods that change before each relist, 0 to 1")
	flag.DurationVar(&cfg.period, "period", 0, "pause after each relist; 0: back to back")
	flag.StringVar(&cfg.profiles, "profiles", "", "`directory` for CPU profiles of the subjects")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, *sizes); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, sizes string) error {
	fmt.Printf("One relist: both lists, %d containers a pod, %.0f %% of the pods changing; medians of %d rounds; %s, %d cores, GOMAXPROCS %d.\n",
		cfg.containers, cfg.churn*100, cfg.rounds, runtime.Version(), runtime.NumCPU(), runtime.GOMAXPROCS(0))
	fmt.Println("cpu: user and system time of the client's process. Ratios of cpu in brackets. rss: the client's largest so far.")
	fmt.Printf("\n%6s %9s  %-6s %8s %8s %8s %8s %8s %10s %9s %8s\n",
		"pods", "answers", "", "cpu ms", "/ floor", "/ peer", "p50 ms", "p99 ms", "alloc kB", "objects", "rss MiB")
	for field := range strings.SplitSeq(sizes, ",") {
		pods, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || pods < 1 {
			return fmt.Errorf("--pods: %q is not a number of pods", field)
		}
		cfg.pods = pods
		results, err := compare(ctx, cfg)
		if err != nil {
			return err
		}
		floor, peer := results["floor"].cpu(), results["peer"].cpu()
		for _, name := range subjects() {
			r := results[name]
			fmt.Printf("%6d %6.0f kB  %-6s %8.3f %8s %8s %8.2f %8.2f %10.1f %9.0f %8.1f\n",
				pods, float64(r.bytes())/1000, name, ms(r.cpu()), ratio(r.cpu(), floor), ratio(r.cpu(), peer),
				ms(r.latency(0.50)), ms(r.latency(0.99)), r.allocBytes()/1000, r.allocObjects(), float64(r.rss())/(1<<20))
		}
	}
	return nil
}

func ms(d time.Duration) float64      { return d.Seconds() * 1000 }
func ratio(a, b time.Duration) string { return fmt.Sprintf("(%.2f)", float64(a)/float64(b)) }

// relistsPerRound keeps a round short: all sizes take a few seconds each.
func relistsPerRound(pods int) int { return max(8, 20000/(pods+60)) }
