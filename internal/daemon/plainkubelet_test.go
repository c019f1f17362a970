package daemon

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
)

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
