package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// windowStats are one writer's windows over the runs of a case.
type windowStats struct {
	at              [3]string // at 5, 10 and 20 s, of the first run
	samples, inside int       // of NotReady
	widest          time.Duration
	again, held     int // of Ready again
	before          int // samples with NotReady that the API does not show, nor within 0.3 s
	late            time.Duration
	early           int // Ready said while the API shows NotReady and no window is open
}

func (s *windowStats) String() string {
	share := func(n, of int) string {
		if of == 0 {
			return "   –"
		}
		return fmt.Sprintf("%3d%%", n*100/of)
	}
	return fmt.Sprintf("%-14s %-14s %-14s | in %s widest %5.1f | false NotReady %d, late %4.1f | Ready in %s, early %d",
		s.at[0], s.at[1], s.at[2], share(s.inside, s.samples), s.widest.Seconds(), s.before, s.late.Seconds(), share(s.held, s.again), s.early)
}

// sample is what a writer said at a moment.
type sample struct {
	at time.Time
	ns health.NodeStatus
}

func (s *windowStats) take(samples []sample, began time.Time, api []time.Time, first bool) {
	shown := func(t time.Time) (notReady bool, next time.Time) {
		for i, at := range api {
			if at.After(t) {
				return i%2 == 1, at
			}
		}
		return len(api)%2 == 1, time.Time{}
	}
	for _, p := range samples {
		since := p.at.Sub(began)
		if first {
			for i, d := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
				if since == d {
					s.at[i] = "–"
					if p.ns.NotReady {
						s.at[i] = "NotReady"
					} else if !p.ns.NotReadyFrom.IsZero() {
						s.at[i] = fmt.Sprintf("%.1f..%.1f", p.ns.NotReadyFrom.Sub(began).Seconds(), p.ns.NotReadyBy.Sub(began).Seconds())
					}
				}
			}
		}
		notReady, next := shown(p.at)
		from, by := p.ns.NotReadyFrom, p.ns.NotReadyBy
		if !from.IsZero() && since >= 5*time.Second {
			s.widest = max(s.widest, by.Sub(from))
		}
		if !notReady && !next.IsZero() && since >= 6*time.Second && next.Sub(p.at) > 250*time.Millisecond && next.Equal(api[0]) {
			s.samples++
			if !from.IsZero() && !next.Before(from) && !next.After(by) {
				s.inside++
			}
		}
		if notReady && !next.IsZero() && (!p.ns.ReadyFrom.IsZero() || p.ns.NotReady) && !p.ns.ReadyFrom.IsZero() {
			s.again++
			if !next.Before(p.ns.ReadyFrom) && !next.After(p.ns.ReadyBy) {
				s.held++
			}
		}
		soon := !next.IsZero() && next.Sub(p.at) < 300*time.Millisecond
		switch {
		case p.ns.NotReady && !notReady && len(api) == 0:
			s.before++
		case p.ns.NotReady && !notReady && p.at.Before(api[0]) && !soon:
			s.before++
		case !p.ns.NotReady && notReady && p.at.After(api[0]):
			if !from.IsZero() || !p.ns.ReadyFrom.IsZero() {
				s.late = max(s.late, p.at.Sub(api[0]))
			} else if p.at.Sub(api[len(api)-1]) < 0 || len(api)%2 == 1 {
				s.early++
			}
		}
	}
}

// TestWindows compares the NotReady window of health.NodeWriter with
// kubelets of several phases.
func TestWindows(t *testing.T) {
	down := func(w *watched) { w.rt.Kill() }
	up := func(w *watched) { _ = w.rt.Restart() }
	type row struct {
		writerCase
		again   time.Duration // the fault is there for lasts, gone for this, there ...
		started time.Duration // plegd starts so long after the fault
		state   bool          // a plegd before it has run until 3 s before that
		fresh   time.Duration // the kubelet is restarted so long after the fault
	}
	var rows []row
	for _, s := range []int{20, 33, 45, 63, 90, 150, 270} {
		rows = append(rows, row{writerCase: writerCase{name: fmt.Sprintf("SIGSTOP %d s", s), fault: failpoints("socket=freeze"), lasts: time.Duration(s) * time.Second}})
	}
	rows = append(rows,
		row{writerCase: writerCase{name: "SIGSTOP 90 s, RPC 15 s", timeout: 15 * time.Second, fault: failpoints("socket=freeze"), lasts: 90 * time.Second}},
		row{writerCase: writerCase{name: "stopped 60, running 20, ...", fault: failpoints("socket=freeze"), lasts: 60 * time.Second}, again: 20 * time.Second},
		row{writerCase: writerCase{name: "killed, 5 s", fault: down, end: up, lasts: 5 * time.Second}},
		row{writerCase: writerCase{name: "killed, 28 s", fault: down, end: up, lasts: 28 * time.Second}},
		row{writerCase: writerCase{name: "killed, 45 s", fault: down, end: up, lasts: 45 * time.Second}},
		row{writerCase: writerCase{name: "ListPodSandbox hangs 220 s", fault: failpoints("ListPodSandbox=hang"), lasts: 220 * time.Second}},
		row{writerCase: writerCase{name: "ListContainers hangs 100 s", fault: failpoints("ListContainers=hang"), lasts: 100 * time.Second}},
		row{writerCase: writerCase{name: "lists fail 220 s", fault: failpoints("ListContainers=error(Internal: boom)"), lasts: 220 * time.Second}},
		row{writerCase: writerCase{name: "Status hangs 80 s", fault: failpoints("Status=hang"), lasts: 80 * time.Second}},
		row{writerCase: writerCase{name: "Status fails 80 s", fault: failpoints("Status=error(Internal: boom)"), lasts: 80 * time.Second}},
		row{writerCase: writerCase{name: "network not ready 60 s", fault: failpoints("Status=notready(NetworkReady)"), lasts: 60 * time.Second}},
		row{writerCase: writerCase{name: "Version hangs 300 s", fault: failpoints("Version=hang"), lasts: 300 * time.Second}},
		row{writerCase: writerCase{name: "Version and lists hang 300 s", fault: failpoints("Version=hang;ListContainers=hang"), lasts: 300 * time.Second}},
		row{writerCase: writerCase{name: "Version and Status hang 200 s", fault: failpoints("Version=hang;Status=hang"), lasts: 200 * time.Second}},
		row{writerCase: writerCase{name: "SIGSTOP 150 s, plegd from 10 s on", fault: failpoints("socket=freeze"), lasts: 150 * time.Second}, started: 10 * time.Second},
		row{writerCase: writerCase{name: "SIGSTOP 270 s, plegd from 60 s on", fault: failpoints("socket=freeze"), lasts: 270 * time.Second}, started: 60 * time.Second},
		row{writerCase: writerCase{name: "lists hang 270 s, plegd from 60 s on", fault: failpoints("ListContainers=hang"), lasts: 270 * time.Second}, started: 60 * time.Second},
		row{writerCase: writerCase{name: "Version, lists 300 s, plegd from 60 s", fault: failpoints("Version=hang;ListContainers=hang"), lasts: 300 * time.Second}, started: 60 * time.Second},
	)
	for _, r := range rows {
		if r.started > 0 {
			r.name, r.state = strings.Replace(r.name, "plegd", "plegd again", 1), true
			rows = append(rows, r)
		}
	}
	rows = append(rows,
		row{writerCase: writerCase{name: "lists hang 270 s, kubelet again at 20 s", fault: failpoints("ListContainers=hang"), lasts: 270 * time.Second}, fresh: 20 * time.Second},
		row{writerCase: writerCase{name: "Status hangs 270 s, kubelet again at 10 s", fault: failpoints("Status=hang"), lasts: 270 * time.Second}, fresh: 10 * time.Second},
		row{writerCase: writerCase{name: "SIGSTOP 270 s, kubelet again at 30 s", fault: failpoints("socket=freeze"), lasts: 270 * time.Second}, fresh: 30 * time.Second},
		row{writerCase: writerCase{name: "lists hang 60 s, kubelet again at 20 s", fault: failpoints("ListContainers=hang"), lasts: 60 * time.Second}, fresh: 20 * time.Second},
	)
	for _, c := range rows {
		if ok, _ := regexp.MatchString(os.Getenv("ROWS"), c.name); !ok {
			continue
		}
		var bound windowStats
		var apis []string
		for i := range 2 {
			synctest.Test(t, func(t *testing.T) {
				timeout := c.timeout
				if timeout == 0 {
					timeout = cri.DefaultRPCTimeout
				}
				step := func(d time.Duration) time.Duration { return time.Duration(i * int(d)) }
				rt := fakeRuntime(10, 2)
				k := startKubelet(t, rt, timeout, 600*time.Millisecond+step(700*time.Millisecond), 170*time.Millisecond+step(130*time.Millisecond), 500*time.Millisecond+step(1700*time.Millisecond))
				config := func(cfg *Config) {
					cfg.RPCTimeout = timeout
				}
				var w *watched
				var stop func()
				dir, proc := t.TempDir(), t.TempDir()
				if c.state {
					id := filepath.Join(proc, "sys/kernel/random")
					if err := errors.Join(os.MkdirAll(id, 0o755), os.WriteFile(filepath.Join(id, "boot_id"), []byte("b007\n"), 0o644)); err != nil {
						t.Fatal(err)
					}
				}
				if c.state {
					plain := config
					config = func(cfg *Config) {
						plain(cfg)
						cfg.StateDir, cfg.ProcFS = dir, proc
					}
					w, stop = brief(t, rt, config)
				} else if c.started == 0 {
					w = watch(t, rt, config)
				} else {
					w = &watched{t: t, rt: rt, t0: time.Now()}
				}
				at := 60*time.Second + 300*time.Millisecond
				time.Sleep(time.Until(w.t0.Add(at)))
				synctest.Wait()
				c.fault(w)
				began := time.Now()
				if c.started > 0 {
					time.Sleep(c.started - 3*time.Second)
					if stop != nil {
						stop()
					}
					time.Sleep(3 * time.Second)
					w = watch(t, rt, config)
				}
				var news []sample
				on, turn := true, c.lasts
				if c.again > 0 {
					turn = c.lasts
				}
				end := c.lasts + 40*time.Second
				if c.again > 0 {
					end = 4 * (c.lasts + c.again)
				}
				for d := max(time.Second, c.started+time.Second); d < end; d += 250 * time.Millisecond {
					if d >= turn {
						switch on = !on; {
						case on:
							c.fault(w)
							turn += c.lasts
						default:
							if c.end != nil {
								c.end(w)
							} else {
								w.fail("")
							}
							if turn += c.again; c.again == 0 {
								turn = time.Hour
							}
						}
					}
					if c.fresh > 0 && d == c.fresh {
						k.again(t)
						w.d.kubelet.writer.Restart(time.Now())
						w.d.loop.Restart()
						w.d.kubelet.started = time.Now()
					}
					time.Sleep(time.Until(began.Add(d)))
					synctest.Wait()
					s := w.d.Snapshot(time.Now())
					news = append(news, sample{s.At, *s.Facts.NodeStatus})
				}
				api := k.changes()
				apis = append(apis, fmt.Sprint(since(began, api)))
				bound.take(news, began, api, i == 0)
			})
		}
		if bound.before > 0 {
			t.Errorf("%s: false NotReady: API %v\n   %s", c.name, apis, &bound)
		}
		// A fault that ends before the window begins cannot be predicted.
		if lasts := !strings.Contains(c.name, "again"); lasts && c.lasts >= 200*time.Second && bound.inside*100 < bound.samples*95 {
			t.Errorf("%s: outside of the window: API %v\n   %s", c.name, apis, &bound)
		}
	}
}

// brief runs a plegd that is stopped before the test ends.
func brief(t *testing.T, rt *fakeruntime.Runtime, change func(*Config)) (*watched, func()) {
	cfg := DefaultConfig()
	cfg.RuntimeEndpoint, cfg.Dial = "/run/fake.sock", rt.Dialer()
	cfg.jitter = func(d time.Duration) time.Duration { return d }
	cfg.ControlSocket, cfg.WebListenAddresses, cfg.KubeletHealthzURL = "", nil, ""
	cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
	change(&cfg)
	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remember("1.2.3"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = d.Run(ctx); close(ended) }()
	return &watched{t: t, rt: rt, d: d, t0: time.Now()}, func() { cancel(); <-ended }
}

// again is a kubelet that restarts: it calls Status, then lists, and only then begins
// its loops with its first update (pkg/kubelet/kubelet.go, updateRuntimeUp). What the
// API shows stays.
func (k *plainKubelet) again(t *testing.T) {
	k.mu.Lock()
	k.gone = true
	k.lastStatus, k.lastSeen = time.Time{}, time.Time{}
	k.mu.Unlock()
	k.cancel()
	k.loops.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	k.mu.Lock()
	k.gone = false
	k.mu.Unlock()
	sliding := func(period time.Duration, f func()) {
		loops.Go(func() {
			for ctx.Err() == nil {
				f()
				select {
				case <-ctx.Done():
				case <-time.After(period):
				}
			}
		})
	}
	status := func() {
		if s, err := k.client.Status(ctx, false); err == nil && s.RuntimeReady != nil && s.RuntimeReady.Status {
			k.mu.Lock()
			k.lastStatus = time.Now()
			k.mu.Unlock()
		}
	}
	lists := func() {
		start := time.Now()
		if _, err := k.client.ListPodSandbox(ctx); err != nil {
			return
		}
		if _, err := k.client.ListContainers(ctx); err != nil {
			return
		}
		k.mu.Lock()
		k.lastSeen = start
		k.mu.Unlock()
	}
	begun := make(chan struct{})
	loops.Go(func() {
		time.Sleep(1500 * time.Millisecond)
		status()
		if _, err := k.client.ListPodSandbox(ctx); err == nil { // in the same lock
			_, _ = k.client.ListContainers(ctx)
		}
		close(begun)
	})
	sliding(5*time.Second, func() { <-begun; status() })
	sliding(time.Second, lists)
	sliding(10*time.Second+200*time.Millisecond, func() {
		<-begun
		_, _ = k.client.Version(ctx)
		if ok := k.rulesOK(); ok == (len(k.api)%2 == 1) && ctx.Err() == nil {
			k.mu.Lock()
			k.api = append(k.api, time.Now())
			k.mu.Unlock()
		}
	})
	k.cancel, k.loops = cancel, &loops
}
