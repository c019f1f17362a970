package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// statusCheck makes the kubelet's runtime status check: Status about every 5 s, the
// next a period after the last one ended, one at a time, with the RPC timeout
// (pkg/kubelet/kubelet.go, updateRuntimeUp).
//
// While a condition is false, or the last call failed, it asks every second in between,
// to detect the recovery at once. These calls do not shift the kubelet's: they end when
// the next of those is due, and count only if every condition is true. So they change
// only one thing: such a node counts as Ready when the quickest kubelet would report
// it, up to 5 s before the slowest; the phase of the node's own kubelet is unknown.
type statusCheck struct {
	rt *runtime
	// failed is called after a call that failed.
	failed func()
	state  atomic.Pointer[health.Status] // InFlightSince is kept apart
	since  atomic.Pointer[time.Time]     // start of the call under way
	due    time.Time                     // when the kubelet's own clock asks next; of the goroutine of Run
}

func newStatusCheck(rt *runtime, restored health.Status, failed func()) *statusCheck {
	s := &statusCheck{rt: rt, failed: failed}
	s.state.Store(&restored)
	return s
}

// String names the task.
func (s *statusCheck) String() string { return "status" }

// Run asks until ctx ends, and then returns nil.
func (s *statusCheck) Run(ctx context.Context) error {
	timer := time.NewTimer(s.turn(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(s.turn(ctx))
		}
	}
}

// turn asks, if there is somebody to ask, and returns the time until the next turn.
func (s *statusCheck) turn(ctx context.Context) time.Duration {
	if s.rt.path() == "" {
		return min(s.rt.cfg.RelistPeriod, judgeEvery) // as soon as there is somebody to ask
	}
	if time.Now().Before(s.due) {
		s.askBetween(ctx, s.due)
	} else {
		s.ask(ctx)
		s.due = time.Now().Add(s.rt.cfg.jittered(health.StatusPeriod))
	}
	wait := time.Until(s.due)
	if s.notGood() {
		wait = min(wait, s.rt.cfg.jittered(betweenStatus))
	}
	return max(wait, 0)
}

// betweenStatus is the time between two calls while Status is not good.
const betweenStatus = time.Second

// notGood reports whether the last call failed or its answer held a condition that
// is false.
func (s *statusCheck) notGood() bool {
	last := s.state.Load()
	return last.LastErr != nil || last.Answered && (!last.RuntimeReady.Good() || !last.NetworkReady.Good())
}

// ask makes one of the kubelet's calls.
func (s *statusCheck) ask(ctx context.Context) {
	start := time.Now()
	s.since.Store(&start)
	defer s.since.Store(nil)
	answer, err := s.rt.Status(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		defer s.failed()
	}
	if err == nil {
		s.answered(&answer)
		return
	}
	// The conditions stay as they were; only the 30 s run on.
	next := *s.state.Load()
	next.LastErr = nil
	_ = errors.As(err, &next.LastErr)
	s.state.Store(&next)
}

// askBetween makes one call between two of the kubelet's, the next of which is
// due then.
func (s *statusCheck) askBetween(ctx context.Context, due time.Time) {
	limited, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	answer, err := s.rt.Status(limited)
	if err == nil && answer.RuntimeReady.Good() && answer.NetworkReady.Good() {
		s.answered(&answer)
	}
}

func (s *statusCheck) answered(a *cri.Status) {
	next := health.Status{
		Answered: true, LastGood: s.state.Load().LastGood,
		RuntimeReady: a.RuntimeReady, NetworkReady: a.NetworkReady,
	}
	if next.RuntimeReady.Good() {
		next.LastGood = time.Now()
	}
	s.state.Store(&next)
}

func (s *statusCheck) facts() health.Status {
	out := *s.state.Load()
	if since := s.since.Load(); since != nil {
		out.InFlightSince = *since
	}
	return out
}
