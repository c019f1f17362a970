// Command bench measures the CPU time and memory of plegd, and fails if a limit is broken. It runs the whole daemon
// beside a plain client, which decodes both lists with the generated code, groups them by pod and compares them with
// the last ones. Both talk to one `plegd simulate`, at the same time and once a second.
//
// The ratios of one run count; times are this machine's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// limit is the most that plegd may cost at a number of pods.
type limit struct {
	pods     int
	perPlain float64 // CPU time of the whole daemon, as a ratio to the plain client's
	resident float64 // MiB
}

var limits = []limit{{110, 1, 32}, {500, .45, 36}, {5000, .25, 64}}

// Limits at every number of pods.
const (
	scrapeLimit = 2 * time.Millisecond // CPU time of one scrape
	seriesLimit = 200
)

const (
	containers  = 2
	scrapeEvery = 15 * time.Second
	// plainArg as the first argument makes this program the plain client.
	plainArg = "plain"
)

func main() {
	if filepath.Base(os.Args[0]) == shimName { // See startPods.
		select {}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) > 2 && os.Args[1] == plainArg {
		return runPlain(ctx, os.Args[2])
	}
	runtime.LockOSThread() // Pdeathsig: the children end with this thread.
	only := flag.Int("pods", 0, "measure this `number` of pods only; 0: 110, 500 and 5000")
	window := flag.Duration("window", 30*time.Second, "how long each line is measured")
	plegd := flag.String("plegd", "build/plegd", "the `binary`")
	flag.Parse()

	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	fmt.Printf("%s; %s, %d cores, load %s\n", time.Now().UTC().Format("2006-01-02"), runtime.Version(), runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Printf("CPU ms/s over %s; %d containers a pod; a scrape every %s.\n", *window, containers, scrapeEvery)
	fmt.Printf("%5s %7s %7s %7s %10s %10s %7s\n", "pods", "plegd", "plain", "ratio", "resident", "scrape", "series")
	var broken []string
	for _, l := range limits {
		if *only != 0 && *only != l.pods {
			continue
		}
		r, err := measure(ctx, *plegd, l.pods, *window)
		if err != nil {
			return err
		}
		fmt.Printf("%5d %7.2f %7.2f %7.2f %6.1f MiB %7.2f ms %7d\n", l.pods, ms(r.whole), ms(r.plain), r.ratio(), r.resident, ms(r.scrape), r.series)
		broken = append(broken, r.broken(l)...)
	}
	if len(broken) > 0 {
		return errors.New("limits broken: " + strings.Join(broken, "; "))
	}
	return nil
}

// row is a line of the table: CPU times per second.
type row struct {
	whole, plain time.Duration
	scrape       time.Duration // of one scrape
	resident     float64       // MiB
	series       int
}

func (r *row) ratio() float64 { return ms(r.whole) / ms(r.plain) }

func (r *row) broken(l limit) (out []string) {
	for _, c := range []struct {
		name      string
		got, most float64
	}{
		{"plegd/plain", r.ratio(), l.perPlain},
		{"resident MiB", r.resident, l.resident},
		{"scrape ms", ms(r.scrape), ms(scrapeLimit)},
		{"series", float64(r.series), seriesLimit},
	} {
		if c.got > c.most {
			out = append(out, fmt.Sprintf("%d pods: %s is %.2f, at most %g", l.pods, c.name, c.got, c.most))
		}
	}
	return out
}

// measure runs plegd and the plain client beside each other.
func measure(ctx context.Context, binary string, pods int, window time.Duration) (*row, error) {
	n, err := newNode(ctx, binary, pods)
	if err != nil {
		return nil, err
	}
	defer n.close()
	d, err := n.startDaemon(ctx, binary)
	if err != nil {
		return nil, err
	}
	plain, err := n.startSelf(ctx, plainArg, n.socket)
	if err != nil {
		return nil, err
	}
	if err := d.settled(ctx); err != nil {
		return nil, err
	}
	relists, err := d.relists(ctx)
	if err != nil {
		return nil, err
	}
	r, start := &row{}, time.Now()
	whole, other := cpuOf(d.pid), cpuOf(plain)
	for left := window; left > 0; left -= scrapeEvery {
		if err := wait(ctx, min(left, scrapeEvery)); err != nil {
			return nil, err
		}
		if r.series, err = d.scrape(ctx); err != nil {
			return nil, err
		}
	}
	passed := time.Since(start).Seconds()
	r.whole = time.Duration(float64(cpuOf(d.pid)-whole) / passed)
	made, err := d.relists(ctx)
	if err != nil {
		return nil, err
	}
	// The plain client makes one relist a second, plegd one a second after the last has ended.
	r.plain = time.Duration(float64(cpuOf(plain)-other) / passed * float64(made-relists) / passed)
	r.resident = resident(d.pid)
	r.scrape, err = d.scrapeCost(ctx, r.whole.Seconds())
	return r, err
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

// resident is the resident set of a process, in MiB.
func resident(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // 0 if the process is gone
	var size, pages int
	_, _ = fmt.Sscan(string(text), &size, &pages)
	return float64(pages*os.Getpagesize()) / (1 << 20)
}
