package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemons runs the whole daemon, with its probes, its Status and its evidence,
// beside a peer that does nothing but relist, both at 1 Hz and for the same
// time; and then how long a relist takes while nobody scrapes, and while ten do
// at once, every 100 ms.
func daemons(ctx context.Context, cfg config, sizes, binary string, window time.Duration) error {
	pods, err := numbers("-pods", sizes)
	if err != nil {
		return err
	}
	fmt.Printf("%s run beside a bare peer, both at 1 Hz for %s\n", filepath.Base(binary), window)
	fmt.Printf("%6s %13s %13s %8s %10s %7s %14s %10s %13s\n", "pods", "plegd ms/s", "peer ms/s", "/ peer", "rss MiB", "series", "cpu ms/scrape", "relist ms", "10 scrapers")
	for _, n := range pods {
		cfg.pods = int(n)
		if err := besideDaemon(ctx, cfg, binary, window); err != nil {
			return err
		}
	}
	return nil
}

func besideDaemon(ctx context.Context, cfg config, binary string, window time.Duration) error {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "runtime.sock")
	server, err := startRuntimeChild(ctx, socket, cfg.pods, cfg.containers, 0)
	if err != nil {
		return err
	}
	defer server.close()
	peer, err := startChild(ctx, "peer", "-socket", socket)
	if err != nil {
		return err
	}
	defer peer.close()

	d, err := startDaemon(ctx, binary, socket, dir)
	if err != nil {
		return err
	}
	defer d.stop()

	url := "http://" + d.address + "/metrics"
	before := cpuOf(d.pid())
	r, err := peer.round(order{Relists: int(window.Seconds()), Period: time.Second})
	if err != nil {
		return err
	}
	used := cpuOf(d.pid()) - before
	rss := resident(d.pid())

	series, err := scrape(ctx, url)
	if err != nil {
		return err
	}
	each, err := scrapeCost(ctx, url, d.pid(), float64(used)/float64(window))
	if err != nil {
		return err
	}
	alone, err := meanRelist(ctx, url, 20*time.Second, 0)
	if err != nil {
		return err
	}
	crowded, err := meanRelist(ctx, url, 20*time.Second, 10)
	if err != nil {
		return err
	}
	own, others := ms(used)/window.Seconds(), ms(r.CPU)/window.Seconds()
	fmt.Printf("%6d %13.2f %13.2f %8.2f %10.1f %7d %14.2f %10.2f %13.2f\n", cfg.pods, own, others, own/others, float64(rss)/(1<<20), series, each/1e6, alone, crowded)
	return nil
}

// scrapeCost is the CPU time of one scrape, in nanoseconds: the median over
// rounds of scrapes one after another, less what the daemon spends without any
// (idle, of each second).
func scrapeCost(ctx context.Context, url string, pid int, idle float64) (float64, error) {
	const rounds, scrapes = 9, 100
	var costs []float64
	for range rounds {
		start, before := time.Now(), cpuOf(pid)
		for range scrapes {
			if _, err := scrape(ctx, url); err != nil {
				return 0, err
			}
		}
		costs = append(costs, (float64(cpuOf(pid)-before)-idle*float64(time.Since(start)))/scrapes)
	}
	slices.Sort(costs)
	return costs[rounds/2], nil
}

// daemon is a plegd run.
type daemon struct {
	cmd     *exec.Cmd
	address string
}

// startDaemon starts one as its unit does (deploy/systemd/plegd.service) and
// waits until its start is over.
func startDaemon(ctx context.Context, binary, socket, dir string) (*daemon, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &daemon{address: l.Addr().String()}
	_ = l.Close()
	d.cmd = exec.CommandContext(ctx, binary, "run", "--runtime-endpoint", "unix://"+socket, "--state-dir", dir, "--control-socket", filepath.Join(dir, "control.sock"), "--web.listen-address", d.address)
	d.cmd.Env = append(os.Environ(), "GOMEMLIMIT=192MiB")
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon (make build): %w", err)
	}
	time.Sleep(10 * time.Second)
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}

// cpuOf is the CPU time of a process's threads, to the nanosecond.
func cpuOf(pid int) time.Duration {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	var sum time.Duration
	for _, f := range files {
		text, _ := os.ReadFile(f)
		var ns int64
		_, _ = fmt.Sscan(string(text), &ns)
		sum += time.Duration(ns)
	}
	return sum
}

// meanRelist is the mean duration of the relists of plegd over a while, in
// milliseconds, with a number of scrapers at once.
func meanRelist(ctx context.Context, url string, window time.Duration, scrapers int) (float64, error) {
	sum, count, err := relistTotals(ctx, url)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range scrapers {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = scrape(ctx, url)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	time.Sleep(window)
	cancel()
	all.Wait()
	sum2, count2, err := relistTotals(context.WithoutCancel(ctx), url)
	return (sum2 - sum) / (count2 - count) * 1000, err
}

func relistTotals(ctx context.Context, url string) (sum, count float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "pleg_relist_duration_seconds_sum":
			_, err = fmt.Sscan(value, &sum)
		case "pleg_relist_duration_seconds_count":
			_, err = fmt.Sscan(value, &count)
		}
	}
	if count == 0 && err == nil {
		err = fmt.Errorf("%s has no pleg_relist_duration_seconds", url)
	}
	return sum, count, err
}

// scrape returns the number of series that a scrape finds.
func scrape(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("scrape: %w", err)
	}
	defer resp.Body.Close()
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			n++
		}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return n, err
}
