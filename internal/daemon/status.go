package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// statusCheck makes the kubelet's runtime status check: Status every 5 s on its
// own clock, the next a period after the last one ended, one at a time, with
// the RPC timeout (pkg/kubelet/kubelet.go, updateRuntimeUp).
type statusCheck struct {
	rt    *runtime
	state atomic.Pointer[health.Status] // InFlightSince is kept apart
	since atomic.Pointer[time.Time]     // start of the call under way
}

func newStatusCheck(rt *runtime, restored health.Status) *statusCheck {
	s := &statusCheck{rt: rt}
	s.state.Store(&restored)
	return s
}

// String names the task.
func (s *statusCheck) String() string { return "status" }

// Run asks until ctx ends, and then returns nil.
func (s *statusCheck) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := health.StatusPeriod
		if c, err := s.rt.client(cri.OpStatus); err == nil {
			s.ask(ctx, c)
		} else {
			wait = s.rt.cfg.RelistPeriod // as soon as there is somebody to ask
		}
		timer.Reset(wait)
	}
}

func (s *statusCheck) ask(ctx context.Context, c *cri.Client) {
	start := time.Now()
	s.since.Store(&start)
	answer, err := c.Status(ctx, false)
	defer s.since.Store(nil)
	if ctx.Err() != nil {
		return
	}
	next := *s.state.Load()
	next.LastErr = nil
	if err != nil {
		// The conditions stay as they were; only the 30 s run on.
		var e *cri.Error
		if errors.As(err, &e) {
			next.LastErr = callError(e)
		}
		s.state.Store(&next)
		return
	}
	next.Answered, next.Restored = true, false
	next.RuntimeReady, next.NetworkReady = condition(answer.RuntimeReady), condition(answer.NetworkReady)
	if next.RuntimeReady != nil && next.RuntimeReady.Status {
		next.LastGood = time.Now()
	}
	s.state.Store(&next)
}

func condition(c *cri.Condition) *health.Condition {
	if c == nil {
		return nil
	}
	return &health.Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
}

func (s *statusCheck) facts() health.Status {
	out := *s.state.Load()
	if since := s.since.Load(); since != nil {
		out.InFlightSince = *since
	}
	return out
}
