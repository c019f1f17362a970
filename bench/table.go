package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// limit is what plegd is held to at a number of pods, all of one run.
type limit struct {
	perPlain, perFloor float64       // CPU time of the whole, as a ratio
	resident           float64       // MiB
	scrape             time.Duration // CPU time
}

// limits held in three runs of three on a calm machine; goals are what it is meant to
// come to and does not always.
var (
	limits = map[int]limit{
		110:  {1, 4, 29, 3 * time.Millisecond},
		500:  {.4, 3, 30, 3 * time.Millisecond},
		5000: {.2, 2.2, 50, 3 * time.Millisecond},
	}
	goals = map[int]limit{
		110:  {.55, 4, 20, time.Millisecond},
		500:  {.25, 3, 24, time.Millisecond},
		5000: {.13, 2, 48, time.Millisecond},
	}
)

// scrapeEvery is the usual time between two scrapes.
const scrapeEvery = 15 * time.Second

// row is a line of the table: CPU times of a second.
type row struct {
	pods                                          int
	whole, relist, evidence, probes, plain, floor time.Duration
	scrape                                        time.Duration // of one scrape
	resident                                      int64
	series                                        int
}

// judge is what none of the other parts takes: judging, and what the parts share.
func (r *row) judge() time.Duration {
	return r.whole - r.relist - r.evidence - r.probes - time.Duration(float64(r.scrape)/scrapeEvery.Seconds())
}

func table(ctx context.Context, cfg config, pods []int) error {
	load, _ := os.ReadFile("/proc/loadavg") // without it there is none to show
	fmt.Printf("%s; %s, %d cores, Linux %s, load %s\n", time.Now().UTC().Format("2006-01-02"), runtime.Version(), runtime.NumCPU(), kernel(), strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Printf("CPU milliseconds a second for as many relists as plegd makes, 1 s after each, for %s; %d containers a pod; plegd is scraped every %s.\n", cfg.window, cfg.containers, scrapeEvery)
	fmt.Println("judge: what no other part takes. scrape: of one. /plain, /floor: the whole to these.")
	fmt.Printf("%5s %7s = %7s %8s %7s %7s  %7s %7s  %6s %6s  %7s %9s\n", "pods", "plegd", "relist", "evidence", "probes", "judge", "plain", "floor", "/plain", "/floor", "scrape", "resident")
	var broken, missed []string
	for _, n := range pods {
		cfg.pods = n
		r, err := measureRow(ctx, cfg)
		if err != nil {
			return err
		}
		perPlain, perFloor := ms(r.whole)/ms(r.plain), ms(r.whole)/ms(r.floor)
		resident := float64(r.resident) / (1 << 20)
		fmt.Printf("%5d %7.2f = %7.2f %8.2f %7.2f %7.2f  %7.2f %7.2f  %6.2f %6.2f  %4.2f ms %5.1f MiB\n", n, ms(r.whole), ms(r.relist), ms(r.evidence), ms(r.probes), ms(r.judge()),
			ms(r.plain), ms(r.floor), perPlain, perFloor, ms(r.scrape), resident)
		compare := func(l limit, out *[]string) {
			for _, c := range []struct {
				what      string
				got, most float64
			}{{"plegd/plain", perPlain, l.perPlain}, {"plegd/floor", perFloor, l.perFloor}, {"resident MiB", resident, l.resident}, {"scrape ms", ms(r.scrape), ms(l.scrape)}} {
				if c.most > 0 && c.got > c.most {
					*out = append(*out, fmt.Sprintf("%d pods: %s is %.2f, at most %g", n, c.what, c.got, c.most))
				}
			}
		}
		compare(limits[n], &broken)
		compare(goals[n], &missed)
	}
	fmt.Printf("Goals missed: %s.\n", orNone(missed))
	fmt.Printf("Limits broken: %s.\n", orNone(broken))
	if len(broken) > 0 {
		return errors.New("a limit is broken")
	}
	return nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}

// measureRow runs plegd, its parts and the other clients beside each other.
func measureRow(ctx context.Context, cfg config) (*row, error) {
	n, err := newNode(ctx, cfg.pods, cfg.containers)
	if err != nil {
		return nil, err
	}
	defer n.close()
	d, err := startDaemon(ctx, cfg.plegd, n.socket)
	if err != nil {
		return nil, err
	}
	defer d.stop()

	r := &row{pods: cfg.pods}
	used := map[string]*time.Duration{floorName: &r.floor, plainName: &r.plain, relistName: &r.relist, evidenceName: &r.evidence, probesName: &r.probes}
	pids := map[string]int{}
	for name := range used {
		c, err := startChild(ctx, name, "-socket", n.socket)
		if err != nil {
			return nil, err
		}
		defer c.close()
		if err := c.enc.Encode(order{Relists: 1 << 30, Period: time.Second}); err != nil { // until it is closed
			return nil, err
		}
		pids[name] = c.cmd.Process.Pid
	}
	if err := d.settled(ctx); err != nil { // the first relist inspects every pod
		return nil, err
	}
	if err := wait(ctx, 15*time.Second); err != nil { // they have found their runtime, its processes and their heap
		return nil, err
	}
	relists, err := d.relists(ctx)
	if err != nil {
		return nil, err
	}
	before, start := map[string]time.Duration{}, time.Now()
	whole := cpuOf(d.pid())
	for name, pid := range pids {
		before[name] = cpuOf(pid)
	}
	for left := cfg.window; left > 0; left -= scrapeEvery {
		if err := wait(ctx, min(left, scrapeEvery)); err != nil {
			return nil, err
		}
		if r.series, err = scrape(ctx, d.client, d.url); err != nil {
			return nil, err
		}
	}
	passed := time.Since(start)
	perSecond := func(used time.Duration) time.Duration { return time.Duration(float64(used) / passed.Seconds()) }
	r.whole = perSecond(cpuOf(d.pid()) - whole)
	for name, pid := range pids {
		*used[name] = perSecond(cpuOf(pid) - before[name])
	}
	made, err := d.relists(ctx)
	if err != nil {
		return nil, err
	}
	// The others make one relist a second, plegd one a second after the last has ended.
	for _, used := range []*time.Duration{&r.floor, &r.plain, &r.relist} {
		*used = time.Duration(float64(*used) * float64(made-relists) / passed.Seconds())
	}
	r.resident = resident(d.pid())
	r.scrape, err = d.scrapeCost(ctx, r.whole.Seconds())
	return r, err
}
