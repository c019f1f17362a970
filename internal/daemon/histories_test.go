package daemon

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/kubelet"
	"github.com/plegd/plegd/test/must"
)

// historySeeds: go test ./internal/daemon -run TestHistories -histories 200 -timeout 1h.
var historySeeds = flag.Int("histories", 4, "number of random histories of TestHistories")

// history is a random history of a runtime, a kubelet and plegd.
type history struct {
	t       *testing.T
	random  *rand.Rand
	procfs  string
	config  func(*Config)
	kubelet *plainKubelet
	w       *watched
	pid     int // of the kubelet
	log     []string
	samples []facts.Snapshot
}

// TestHistories: in any history, 60 s after the last disturbance the verdict is healthy and has no window, and
// the model was never certain of NotReady while the API showed Ready.
func TestHistories(t *testing.T) {
	for seed := range *historySeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, random: rand.New(rand.NewPCG(37, seed)), procfs: t.TempDir(), pid: 100}
	boot := filepath.Join(h.procfs, "sys/kernel/random")
	mkdir(t, boot)
	write(t, filepath.Join(boot, "boot_id"), "b007\n")
	kubeletProcess(t, h.procfs, h.pid, 1)
	rt, dir := fakeRuntime(10, 2), t.TempDir()
	h.config = func(cfg *Config) { cfg.ProcFS, cfg.StateDir = h.procfs, dir }
	h.kubelet = startKubelet(t, rt, cri.DefaultRPCTimeout, phasesOf(h.random.IntN(6)))
	h.w = watch(t, rt, h.config)
	return h
}

// run makes up to six disturbances, ends them all, and looks for a minute.
func (h *history) run() {
	faults := []string{
		"socket=freeze", "ListContainers=hang", "ListPodSandbox=hang", "Status=hang", "Version=hang", "Version=hang;Status=hang",
		"ListContainers=delay(4s)", "ListContainers=delay(40s)", "Status=delay(20s)", "PodSandboxStatus=delay(1s)",
		"Status=error(Unknown: m)", "Status=notready(RuntimeReady)", "ListContainers=error(Internal: m)",
	}
	h.watch(time.Duration(5+h.random.IntN(20)) * time.Second)
	for range 1 + h.random.IntN(6) {
		switch h.random.IntN(6) {
		case 0:
			h.restartPlegd()
		case 1:
			h.restartKubelet()
		case 2:
			h.restartRuntime()
		default:
			h.fail(faults[h.random.IntN(len(faults))])
		}
		h.watch(time.Duration(h.random.IntN(200)) * time.Second)
		if h.random.IntN(2) == 0 {
			h.fail("")
			h.watch(time.Duration(h.random.IntN(40)) * time.Second)
		}
	}
	h.fail("")
	h.watch(time.Minute)
	v := h.samples[len(h.samples)-1].Verdict
	if v.State != facts.StateHealthy || !v.NodeReady || v.NotReadyIn != nil || v.ReadyIn != nil {
		h.t.Errorf("60 s after the last disturbance: %s %s, node Ready %t, NotReady in %v, Ready in %v", v.State, v.Reason, v.NodeReady, v.NotReadyIn, v.ReadyIn)
	}
	h.noContradiction()
	if h.t.Failed() {
		h.t.Logf("the API changed at %v: %s", h.kubelet.changes(), strings.Join(h.log, ", "))
	}
}

func (h *history) note(event string) {
	h.log = append(h.log, time.Now().Format("4:05.0 ")+event)
}

func (h *history) fail(spec string) {
	h.note("failpoints " + spec)
	h.w.fail(spec)
}

// watch takes four samples a second.
func (h *history) watch(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		h.samples = append(h.samples, h.w.at(time.Since(h.w.t0)+250*time.Millisecond))
	}
}

func (h *history) restartPlegd() {
	h.note("plegd restarts")
	h.w.stop()
	time.Sleep(time.Duration(1+h.random.IntN(20)) * time.Second)
	h.w = watch(h.t, h.w.rt, h.config)
}

func (h *history) restartKubelet() {
	h.note("the kubelet restarts")
	if err := os.RemoveAll(filepath.Join(h.procfs, fmt.Sprint(h.pid))); err != nil {
		h.t.Fatal(err)
	}
	h.pid++
	kubeletStarts(h.t, h.procfs, h.pid)
	h.kubelet.restart()
}

func (h *history) restartRuntime() {
	h.note("the runtime restarts")
	h.w.rt.Kill()
	h.watch(time.Duration(h.random.IntN(50)) * time.Second)
	restart(h.w)
}

func (h *history) noContradiction() {
	api := h.kubelet.changes()
	for _, s := range h.samples {
		if text := contradiction(api, &s); text != "" {
			h.t.Errorf("%s: %s: %s %s", s.At.Format("4:05.00"), text, s.Verdict.State, s.Verdict.KubeletMessage)
			return
		}
	}
}

// contradiction returns what a snapshot states as certain although the API shows the opposite, and has for long enough:
// a kubelet may see the end of a fault up to 2 s before plegd does, and its begin a period of Status. What the API shows
// within 0.3 s counts.
func contradiction(api []time.Time, s *facts.Snapshot) string {
	notReady, next := conditionAt(api, s.At)
	soon := !next.IsZero() && next.Sub(s.At) < 300*time.Millisecond
	wasNotReady, _ := conditionAt(api, s.At.Add(-2*time.Second))
	lasts, _ := conditionAt(api, s.At.Add(-kubelet.StatusPeriod-time.Second))
	if soon || s.Verdict.State == facts.StateStarting {
		return ""
	}
	certain := s.Facts.NodeStatus.NotReady || !s.Verdict.NodeReady
	open := s.Verdict.NotReadyIn != nil || s.Verdict.ReadyIn != nil
	switch {
	case !notReady && !wasNotReady && certain:
		return "NotReady is certain while the API shows Ready"
	case notReady && lasts && !certain && !open:
		return "Ready is certain while the API shows NotReady"
	}
	return ""
}

// days: go test ./internal/daemon -run TestWeek -days 7 -timeout 2h.
var days = flag.Float64("days", 0.01, "how many days TestWeek plays")

// TestWeek plays days with the real constants in fast forward: pods that come and go,
// faults that come and go, hours of flapping. Relists continue throughout, and all
// stored state stays within its bounds.
func TestWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not parallel: it measures the process
		dir := t.TempDir()
		rt := fakeRuntime(3, 1)
		w := watch(t, rt, func(c *Config) { c.StateDir = dir })
		length := time.Duration(*days * float64(24*time.Hour))
		r := rand.New(rand.NewPCG(7, 7))
		faults := []string{
			"socket=freeze", "ListContainers=hang", "ListPodSandbox=error(Internal: boom)", "Status=hang", "PodSandboxStatus=hang",
			"ListContainers=delay(5s)", "ListPodSandbox=2*hang->1*off->2*hang->1*off->2*hang->1*off->off", "socket=noaccept", "*=error(Unknown: server is not initialized yet)",
		}
		var m0, m1 goruntime.MemStats
		goroutines := 0
		made, flaps := 0, 0
		for at := 30 * time.Second; at < length; {
			w.at(at)
			if made == 1 { // all that is made once has been made
				goruntime.GC()
				goruntime.ReadMemStats(&m0)
				goroutines = goruntime.NumGoroutine()
			}
			if r.IntN(12) == 0 { // flapping, faster than incidents may open
				for range 100 {
					flaps++
					w.rt.SetCondition("NetworkReady", false, "No", "no")
					at += 7 * time.Second
					w.at(at)
					w.rt.SetCondition("NetworkReady", true, "", "")
					at += 7 * time.Second
					w.at(at)
				}
			} else {
				w.fail(faults[made%len(faults)])
				pod := w.rt.AddPod(fakeruntime.PodSpec{Name: fmt.Sprintf("pod-%d", made), Namespace: "default"})
				at += 10*time.Second + time.Duration(r.Int64N(int64(6*time.Minute)))
				w.at(at)
				w.fail("")
				w.rt.RemovePod(pod.UID)
				made++
			}
			at += 4*time.Minute + 10*time.Second
			if made%100 == 0 {
				t.Logf("%s: %d faults, %d flaps", at, made, flaps)
			}
			if s := w.at(at); s.Verdict.State != facts.StateHealthy {
				t.Fatalf("at %s after fault %d: %s, %s", at, made, s.Verdict.State, s.Verdict.Reason)
			}
			at += time.Duration(r.Int64N(int64(10 * time.Minute)))
		}
		s := w.at(length + 20*time.Minute)
		goruntime.GC()
		goruntime.ReadMemStats(&m1)
		list := w.d.Incidents()
		var bytes int64
		entries, err := os.ReadDir(incident.Dir(dir))
		must.Do(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
				if info.Size() > incident.MaxFileBytes {
					t.Errorf("%s has %d bytes", e.Name(), info.Size())
				}
			}
		}
		t.Logf("%s: %d relists, %d faults, %d flaps, %d incidents kept in %d files of %d KB; heap %d KB, then %d KB; %d goroutines, then %d",
			length, s.Facts.Relist.Attempts, made, flaps, len(list), len(entries), bytes>>10, m0.HeapAlloc>>10, m1.HeapAlloc>>10, goroutines, goruntime.NumGoroutine())
		if len(list) > incident.MaxFiles || len(entries) > incident.MaxFiles {
			t.Errorf("%d incidents in %d files of %d bytes", len(list), len(entries), bytes)
		}
		if want := uint64(length.Seconds() / 30); s.Facts.Relist.Attempts < want {
			t.Errorf("%d relists in %s", s.Facts.Relist.Attempts, length)
		}
		// The process has other goroutines too: only a long run tells a leak from them.
		measured := *days >= 1
		if n := goruntime.NumGoroutine(); measured && n > goroutines+10 {
			t.Errorf("%d goroutines after the first fault, %d at the end", goroutines, n)
		}
		// The stored state grows to its bounds: the last incident, the queue, the list.
		if most := m0.HeapAlloc + 24<<20; measured && m1.HeapAlloc > most {
			t.Errorf("the heap was %d KB after the first fault and is %d KB", m0.HeapAlloc>>10, m1.HeapAlloc>>10)
		}
		for _, i := range list {
			if i.Outcome == incident.Open {
				t.Errorf("%s is open for ever: %s", i.ID, i.Reason)
			}
		}
	})
}

// phases are the times after its start at which a kubelet's loops first run.
type phases struct{ status, relist, update time.Duration }

// phasesOf returns different phases for each i.
func phasesOf(i int) phases {
	step := func(first, d time.Duration) time.Duration { return first + time.Duration(i)*d }
	return phases{
		status: step(600*time.Millisecond, 700*time.Millisecond), relist: step(170*time.Millisecond, 130*time.Millisecond),
		update: step(500*time.Millisecond, 1700*time.Millisecond),
	}
}

// plainKubelet makes a kubelet's calls to the runtime and writes its Ready
// condition (pkg/kubelet/kubelet.go, Run, 1.36). It shares no code with plegd's
// model of one.
type plainKubelet struct {
	t      *testing.T
	client *cri.Client

	mu         sync.Mutex
	lastStatus time.Time
	lastSeen   time.Time
	notReady   bool        // a condition of Status is false
	api        []time.Time // when the Ready condition changed: False, True, False ...

	cancel context.CancelFunc
	loops  *sync.WaitGroup
}

// startKubelet starts a kubelet that has run for long, and ends it with the test.
func startKubelet(t *testing.T, rt *fakeruntime.Runtime, timeout time.Duration, p phases) *plainKubelet {
	t.Helper()
	client := cri.New(cri.Options{Path: "/run/fake.sock", Dial: rt.Dialer(), RPCTimeout: timeout})
	k := &plainKubelet{t: t, client: client, lastStatus: time.Now(), lastSeen: time.Now()}
	k.start(p, func(context.Context) {})
	t.Cleanup(func() {
		k.cancel()
		_ = client.Close()
		k.loops.Wait()
	})
	return k
}

// restart ends the kubelet's process and starts another one. It calls Status, then
// lists in the same lock, and only then do its loops begin (updateRuntimeUp). The
// Ready condition stays as it is.
func (k *plainKubelet) restart() {
	k.cancel()
	k.loops.Wait()
	k.mu.Lock()
	k.lastStatus, k.lastSeen = time.Time{}, time.Time{}
	k.mu.Unlock()
	k.start(phases{}, func(ctx context.Context) {
		time.Sleep(1500 * time.Millisecond)
		k.status(ctx)
		k.list(ctx)
	})
}

func (k *plainKubelet) start(p phases, first func(context.Context)) {
	ctx, cancel := context.WithCancel(k.t.Context())
	var loops sync.WaitGroup
	sliding := func(phase, period time.Duration, jitter float64, f func(context.Context)) {
		random := rand.New(rand.NewPCG(1, uint64(p.update)))
		loops.Go(func() {
			for d := phase; ; d = period + time.Duration(random.Float64()*jitter*float64(period)) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(d):
				}
				f(ctx)
			}
		})
	}
	begun := make(chan struct{})
	loops.Go(func() { first(ctx); close(begun) })
	sliding(p.relist, time.Second, 0, func(ctx context.Context) {
		if start := time.Now(); k.list(ctx) {
			k.mu.Lock()
			k.lastSeen = start
			k.mu.Unlock()
		}
	})
	sliding(p.status, 5*time.Second, 0, func(ctx context.Context) { <-begun; k.status(ctx) })
	sliding(p.update, 10*time.Second, 0.04, func(ctx context.Context) {
		<-begun
		_, _ = k.client.Version(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.rulesOK() == (len(k.api)%2 == 1) && ctx.Err() == nil {
			k.api = append(k.api, time.Now())
		}
	})
	k.cancel, k.loops = cancel, &loops
}

func (k *plainKubelet) status(ctx context.Context) {
	s, err := k.client.Status(ctx)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notReady = s.NetworkReady == nil || !s.NetworkReady.Status
	if s.RuntimeReady != nil && s.RuntimeReady.Status {
		k.lastStatus = time.Now()
	} else {
		k.notReady = true
	}
}

func (k *plainKubelet) list(ctx context.Context) bool {
	if _, err := k.client.ListPodSandbox(ctx); err != nil {
		return false
	}
	_, err := k.client.ListContainers(ctx)
	return err == nil
}

// rulesOK reports whether the kubelet's rules hold; k.mu is held.
func (k *plainKubelet) rulesOK() bool {
	now := time.Now()
	return !k.notReady && now.Sub(k.lastStatus) < 30*time.Second && now.Sub(k.lastSeen) <= 3*time.Minute
}

// changes returns when the Ready condition changed.
func (k *plainKubelet) changes() []time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]time.Time(nil), k.api...)
}

// conditionAt returns the condition at t and when it changes next, zero for never.
func conditionAt(api []time.Time, t time.Time) (notReady bool, next time.Time) {
	for i, at := range api {
		if at.After(t) {
			return i%2 == 1, at
		}
	}
	return len(api)%2 == 1, time.Time{}
}
