package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// plainKubelet does what a kubelet does with the runtime's calls and the Ready
// condition (pkg/kubelet/kubelet.go, Run, 1.36), each loop with a phase of its
// own. It shares no code with the model.
type plainKubelet struct {
	client  *cri.Client
	timeout time.Duration

	mu         sync.Mutex
	lastStatus time.Time
	lastSeen   time.Time
	notReady   bool        // a condition of Status is false
	api        []time.Time // when the Ready condition changed: False, True, False ...
	gone       bool
	cancel     func()
	loops      *sync.WaitGroup
}

// startKubelet starts one in the present bubble and ends it with the test.
func startKubelet(t *testing.T, rt *fakeruntime.Runtime, timeout, statusPhase, relistPhase, tick time.Duration) *plainKubelet {
	t.Helper()
	client, err := cri.New(cri.Options{Path: "/run/fake.sock", Dial: rt.Dialer(), RPCTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	k := &plainKubelet{client: client, timeout: timeout, lastStatus: time.Now(), lastSeen: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	sliding := func(phase time.Duration, wait func() time.Duration, f func()) {
		loops.Go(func() {
			for d := phase; ; d = wait() {
				select {
				case <-ctx.Done():
					return
				case <-time.After(d):
				}
				f()
			}
		})
	}
	every := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	random := rand.New(rand.NewPCG(1, uint64(tick)))
	sliding(statusPhase, every(5*time.Second), func() {
		s, err := client.Status(ctx, false)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil {
			return
		}
		k.notReady = s.NetworkReady == nil || !s.NetworkReady.Status
		if s.RuntimeReady != nil && s.RuntimeReady.Status {
			k.lastStatus = time.Now()
		} else {
			k.notReady = true
		}
	})
	sliding(relistPhase, every(time.Second), func() {
		start := time.Now()
		if _, err := client.ListPodSandbox(ctx); err != nil {
			return
		}
		if _, err := client.ListContainers(ctx); err != nil {
			return
		}
		k.mu.Lock()
		k.lastSeen = start
		k.mu.Unlock()
	})
	jitter := func() time.Duration { return 10*time.Second + time.Duration(random.Float64()*0.4*float64(time.Second)) }
	sliding(tick, jitter, func() {
		_, _ = client.Version(ctx)
		if ok := k.rulesOK(); ok == (len(k.api)%2 == 1) && ctx.Err() == nil {
			k.mu.Lock()
			k.api = append(k.api, time.Now())
			k.mu.Unlock()
		}
	})
	k.cancel, k.loops = cancel, &loops
	t.Cleanup(func() {
		k.cancel()
		_ = client.Close()
		k.loops.Wait()
	})
	return k
}

func (k *plainKubelet) rulesOK() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	return !k.notReady && now.Sub(k.lastStatus) < 30*time.Second && now.Sub(k.lastSeen) <= 3*time.Minute
}

func (k *plainKubelet) changes() []time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]time.Time(nil), k.api...)
}

// writerCase is a fault and what the API must show.
type writerCase struct {
	name    string
	timeout time.Duration // 0: 2 min
	// later is how long after plegd's own Version call the fault begins.
	later time.Duration
	fault func(*watched)
	end   func(*watched)
	lasts time.Duration // the fault
	// from and by bound the API's first NotReady, in seconds after the fault
	// began, as measured beside a real kubelet; both 0: it stays Ready.
	from, by float64
	// race is set where a real kubelet may show NotReady for one tick after the
	// fault's end, or not.
	race bool
	// released is set where the update of the kubelet hangs until the fault's end.
	released bool
}

func failpoints(spec string) func(*watched) { return func(w *watched) { w.fail(spec) } }

// TestNodeStatusWriter: beside a kubelet whose loops have other phases than
// plegd's, the API's NotReady falls into the window that was predicted 20 s after
// the fault began, the window is at most 12 s wide, and NotReady is never
// predicted where the API stays Ready.
func TestNodeStatusWriter(t *testing.T) {
	down := func(w *watched) { w.rt.Kill() }
	up := func(w *watched) {
		if err := w.rt.Restart(); err != nil {
			w.t.Error(err)
		}
	}
	for _, c := range []writerCase{
		{name: "freeze 20 s", fault: failpoints("socket=freeze"), lasts: 20 * time.Second},
		{name: "freeze 33 s", fault: failpoints("socket=freeze"), lasts: 33 * time.Second, race: true},
		{name: "freeze 63 s", fault: failpoints("socket=freeze"), lasts: 63 * time.Second, race: true},
		{name: "freeze 150 s", fault: failpoints("socket=freeze"), lasts: 150 * time.Second, from: 120, by: 130.4, released: true},
		{name: "freeze 270 s", fault: failpoints("socket=freeze"), lasts: 270 * time.Second, from: 120, by: 130.4, released: true},
		{name: "freeze, requests of 15 s", timeout: 15 * time.Second, fault: failpoints("socket=freeze"), lasts: 100 * time.Second, from: 39, by: 51, released: true},
		{name: "killed for 50 s", fault: down, end: up, lasts: 50 * time.Second, from: 25, by: 41},
		{name: "killed for 20 s", fault: down, end: up, lasts: 20 * time.Second},
		{name: "lists hang", fault: failpoints("ListContainers=hang"), lasts: 220 * time.Second, from: 179, by: 191},
		{name: "lists hang for 100 s", fault: failpoints("ListPodSandbox=hang"), lasts: 100 * time.Second},
		{name: "lists fail", fault: failpoints("ListContainers=error(Internal: boom)"), lasts: 220 * time.Second, from: 179, by: 191},
		{name: "Version alone hangs", fault: failpoints("Version=hang"), lasts: 300 * time.Second},
		{name: "Version and lists hang", fault: failpoints("Version=hang;ListContainers=hang"), lasts: 300 * time.Second, from: 250, by: 262, released: true},
		{name: "Version and lists hang, 4 s after a Version call", later: 4 * time.Second, fault: failpoints("Version=hang;ListContainers=hang"), lasts: 300 * time.Second, from: 250, by: 262, released: true},
		{name: "Version and lists hang, just before a Version call", later: 4600 * time.Millisecond, fault: failpoints("Version=hang;ListPodSandbox=hang"), lasts: 300 * time.Second, from: 250, by: 262, released: true},
		{name: "Status hangs", fault: failpoints("Status=hang"), lasts: 80 * time.Second, from: 25, by: 41},
		{name: "Status fails", fault: failpoints("Status=error(Internal: boom)"), lasts: 80 * time.Second, from: 25, by: 41},
	} {
		for i := range 3 {
			t.Run(fmt.Sprintf("%s/%d", c.name, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { c.run(t, i) })
			})
		}
	}
}

func (c *writerCase) run(t *testing.T, i int) {
	timeout := c.timeout
	if timeout == 0 {
		timeout = cri.DefaultRPCTimeout
	}
	step := func(d time.Duration) time.Duration { return time.Duration(i * int(d)) }
	rt := fakeRuntime(10, 2)
	k := startKubelet(t, rt, timeout, 600*time.Millisecond+step(1200*time.Millisecond), 170*time.Millisecond+step(250*time.Millisecond), 500*time.Millisecond+step(2700*time.Millisecond))
	w := watch(t, rt, func(cfg *Config) {
		cfg.RPCTimeout = timeout
	})
	at := 60*time.Second + 300*time.Millisecond + c.later
	w.at(at)
	c.fault(w)
	began := time.Now()
	var from, by, readyFrom, readyBy time.Time
	over := false
	var predicted []time.Time // changes of node_ready
	ready := true
	openFor := time.Duration(0) // for how long it may be NotReady after the end
	for d := time.Second; d < c.lasts+40*time.Second; d += 250 * time.Millisecond {
		if d >= c.lasts && !over {
			over = true
			if c.end != nil {
				c.end(w)
			} else {
				w.fail("")
			}
		}
		s := w.at(at + d)
		v := &s.Verdict
		if v.State == health.StateHealthy && (v.NotReadyIn != nil || v.NotReadyInLatest != nil) {
			t.Fatalf("%s after the fault: a healthy verdict counts down to NotReady", d)
		}
		if v.RulesFailIn != nil && v.NodeReady && v.NotReadyIn == nil {
			t.Fatalf("%s after the fault: the rules fail in %s, and nothing says when the node turns NotReady", d, *v.RulesFailIn)
		}
		if d == 19*time.Second && v.NotReadyIn != nil {
			from, by = s.At.Add(*v.NotReadyIn), s.At.Add(*v.NotReadyInLatest)
		}
		if over && v.NodeReady && v.ReadyIn != nil {
			openFor += 250 * time.Millisecond
			if ready := s.At.Add(*v.ReadyInLatest).Sub(began); ready < c.lasts+10*time.Second || ready > c.lasts+12*time.Second {
				t.Errorf("%s after the fault: Ready again after %s at the latest", d, ready)
			}
		}
		if c.released && d == c.lasts+3*time.Second && v.ReadyIn != nil {
			readyFrom, readyBy = s.At.Add(*v.ReadyIn), s.At.Add(*v.ReadyInLatest)
		}
		if v.NodeReady != ready {
			ready = v.NodeReady
			predicted = append(predicted, s.At)
		}
	}
	api := k.changes()
	if c.race && openFor < 5*time.Second {
		t.Errorf("after the end of the hang nothing says for %s that the node may be NotReady", openFor)
	} else if !c.race && openFor > 0 {
		t.Errorf("for %s the node is said to be Ready, and perhaps not", openFor)
	}
	text := fmt.Sprintf("API %s, node_ready %s, window %.1f to %.1f", since(began, api), since(began, predicted), from.Sub(began).Seconds(), by.Sub(began).Seconds())
	if !ready {
		t.Errorf("40 s after the fault's end the node is said to be NotReady: %s", text)
	}
	if c.by == 0 {
		if !c.race && len(api) > 0 || len(predicted) > 0 {
			t.Errorf("want no NotReady: %s", text)
		}
		return
	}
	if len(api) != 2 || len(predicted) != 2 {
		t.Fatalf("want NotReady and Ready again: %s", text)
	}
	if d := api[0].Sub(began).Seconds(); d < c.from || d > c.by {
		t.Errorf("NotReady after %.1f s, a real kubelet after %g to %g: %s", d, c.from, c.by, text)
	}
	if from.IsZero() || api[0].Before(from) || api[0].After(by) {
		t.Errorf("the API's NotReady is not inside the window: %s", text)
	}
	widest := 12*time.Second + 250*time.Millisecond
	if from.Sub(began) > 3*time.Minute+10*time.Second {
		widest += 400 * time.Millisecond // the jitter of a second update
	}
	if width := by.Sub(from); width > widest {
		t.Errorf("the window is %s wide: %s", width, text)
	}
	if c.released && predicted[1].Before(api[1]) {
		t.Errorf("Ready again was predicted before the API showed it: %s", text)
	}
	if later := api[1].Sub(began) > c.lasts+3*time.Second; c.released && later && (api[1].Before(readyFrom) || api[1].After(readyBy)) {
		t.Errorf("Ready again is not inside the window of %.1f to %.1f: %s", readyFrom.Sub(began).Seconds(), readyBy.Sub(began).Seconds(), text)
	}
	if predicted[0].Before(api[0]) {
		t.Errorf("NotReady was predicted before the API showed it: %s", text)
	}
}

func since(t time.Time, times []time.Time) (out []string) {
	for _, at := range times {
		out = append(out, fmt.Sprintf("%.1f", at.Sub(t).Seconds()))
	}
	return out
}

// TestWindowKeepsItsEnd: once the rules have failed, the end of the predicted
// window stays where it is while no update of the kubelet's can have shown
// otherwise, and the node is said to be NotReady soon after it.
func TestWindowKeepsItsEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*watched)
	}{
		{"RuntimeReady is false", failpoints("Status=notready(RuntimeReady)")},
		{"lists fail", failpoints("ListContainers=error(Internal: boom)")},
		{"inspections hang", func(w *watched) {
			w.fail("ContainerStatus=hang")
			w.rt.Churn(0.3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(10, 2), nil)
				w.at(60 * time.Second)
				c.fault(w)
				var first, end time.Time
				for d := 250 * time.Millisecond; ; d += 250 * time.Millisecond {
					s := w.at(60*time.Second + d)
					v := &s.Verdict
					if v.State != health.StateUnhealthy && d < 200*time.Second {
						continue
					}
					if !v.NodeReady {
						if late := s.At.Sub(first); first.IsZero() || late > 2*time.Second {
							t.Errorf("NotReady %s after the end of the first window", late)
						}
						return
					}
					if v.NotReadyInLatest == nil {
						t.Fatalf("%s after the fault: %s %s without a window", d, v.State, v.Reason)
					}
					end = s.At.Add(*v.NotReadyInLatest)
					if first.IsZero() {
						first = end
					}
					if moved := end.Sub(first); moved > 2*time.Second {
						t.Fatalf("%s after the fault the window ends %s later than at first", d, moved)
					}
				}
			})
		})
	}
}
