package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

const (
	// waitingTick is the interval at which it checks whether a call hangs, exploreEvery
	// the time between two rounds of the wait chain.
	waitingTick  = 250 * time.Millisecond
	exploreEvery = time.Second
	// exploreLess is the same for a fault that is older than oldFault: a chain counts
	// for 3 s.
	exploreLess = 2 * time.Second
	oldFault    = 10 * time.Second
)

// waiting follows the chain of waiting while a call hangs. While none does it looks
// at the last verdict and at nothing else.
type waiting struct {
	d     *Daemon
	chain atomic.Pointer[health.Chain]
	// operation is the list that hung last, for the moment between two attempts, and
	// called when it was.
	operation string
	called    time.Time
	// begun is when what hangs began to be unanswered: a call that is suspected, and then
	// hangs, is one fault.
	begun time.Time
	said  string
}

// String names the task.
func (t *waiting) String() string { return "waiting" }

// Run follows until ctx ends, and then returns nil. A round that hangs in a read of
// /proc is waited for by nobody: no other begins until it has ended.
func (t *waiting) Run(ctx context.Context) error {
	var e *chain.Explorer
	var round chan struct{} // closed when the round under way has ended; nil between two
	tick := time.NewTicker(waitingTick)
	defer tick.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			if round == nil && e != nil {
				e.Close()
			}
			return nil
		case <-round:
			round = nil
			continue
		case <-tick.C:
		}
		if round != nil {
			continue
		}
		s, ok := t.symptom(time.Now())
		switch {
		case !ok && e != nil:
			e.Close()
			e = nil
			t.chain.Store(nil)
		case !ok || time.Now().Before(next):
		default:
			if e == nil {
				e = chain.NewExplorer(t.d.cfg.ProcFS, t.d.cfg.SysFS, asker{t.d.runtime}, func(c health.Chain) { t.publish(&c) })
			}
			next = time.Now().Add(exploreEvery)
			if time.Since(s.Since) > oldFault {
				next = time.Now().Add(exploreLess)
			}
			round = make(chan struct{})
			go func(e *chain.Explorer, done chan<- struct{}) {
				defer close(done)
				t.explore(ctx, e, s)
			}(e, round)
		}
	}
}

// explore makes one round; a panic in it is its own failure and nobody else's.
func (t *waiting) explore(ctx context.Context, e *chain.Explorer, s chain.Symptom) {
	defer func() {
		if p := recover(); p != nil {
			t.chain.Store(nil)
			if text := fmt.Sprint(p); text != t.said {
				t.said = text
				t.d.log.Error("following the chain of waiting panicked", zap.String("panic", text), zap.ByteString("stack", debug.Stack()))
			}
		}
	}()
	e.Explore(ctx, s)
}

// publish keeps a chain for the next judgement, which is made at once where the chain
// leads to somebody else than before.
func (t *waiting) publish(c *health.Chain) {
	was, is := t.chain.Swap(c).Culprit(), c.Culprit()
	if is != nil && (was == nil || was.Kind != is.Kind || was.Name != is.Name || was.PID != is.PID) {
		t.d.judge.poke()
	}
}

// symptom returns the call that hangs, by the last verdict, or the one that may soon be
// said to; while none does, the process that the primary reason is about.
func (t *waiting) symptom(now time.Time) (s chain.Symptom, ok bool) {
	published := t.d.judge.published.Load()
	if published == nil {
		return chain.Symptom{}, false
	}
	f := &published.Facts
	s.RuntimePID, s.DaemonPID = t.d.sources.PID(), health.HopPID(f)
	var first []string
	if c := f.Evidence.Children; c != nil {
		for _, child := range c.Stuck {
			first = append(first, child.Sandbox)
		}
	}
	uid, list, call := "", false, false
	for _, a := range published.Verdict.Active {
		switch a.ID {
		case health.RuntimeListStall:
			if in := f.Relist.InFlight; in != nil && in.Phase != health.PhaseInspect {
				t.operation, t.called = string(in.Phase), in.PhaseStart
			}
			t.begun = orElse(t.begun, a.Since)
			list = t.operation != ""
			ok = list
		case health.PodInspectionStall:
			if ok {
				continue // a list that hangs holds up more
			}
			for _, p := range append(f.Relist.Inspecting, f.Relist.Failing...) {
				if stuck := p.Err == nil && now.Sub(orElse(p.CallStart, p.Start)) >= time.Second; stuck || p.Err != nil && p.Err.Code == string(cri.CodeDeadlineExceeded) {
					t.begun = orElse(t.begun, a.Since)
					s.Operation, s.Called, uid, call, ok = p.Operation, orElse(p.CallStart, p.Start), p.UID, true, true
					break
				}
			}
		case health.RuntimeUnresponsive:
			s.Operation, s.Since, s.Called, ok = "every call", a.Since, a.Since, true
			list, call = false, false
			s.OthersAnswered = func() bool { return false }
		}
	}
	s.Lasts = func() bool { return true }
	if !ok {
		fresh := *f // the judgement may be older than the answer to Version
		fresh.Version = t.d.version.facts()
		if s.Process, s.Kind = health.Subject(f.At(published.Verdict.Hop), published.Verdict.Reason); s.Process != 0 {
			s.Since, ok = published.Verdict.Active[0].Since, true
		} else if phase, since, suspected := health.SuspectedList(&fresh, now); suspected {
			t.operation, t.called, t.begun = string(phase), since, since
			list, ok = true, true
		} else if p := health.SuspectedInspection(&fresh, now); p != nil {
			t.begun = p.CallStart
			s.Operation, s.Called, uid, call, ok = p.Operation, p.CallStart, p.UID, true, true
			s.Lasts = func() bool { return t.unanswered(p) }
		}
	}
	switch {
	case list:
		called := t.called
		s.Operation, s.Since, s.Called = t.operation, t.begun, called
		s.Lasts = func() bool { return t.listing(called) }
	case call:
		s.Since = t.begun
	default:
		t.begun = time.Time{}
	}
	if !ok {
		return s, false
	}
	s.Pod = t.d.runtime.known.pod
	s.Sandboxes = s.Operation == string(cri.OpListPodSandbox) || s.Operation == string(cri.OpPodSandboxStatus)
	s.Targets = func() []chain.Target { return t.d.runtime.known.targets(s.Sandboxes, uid, first) }
	if s.OthersAnswered == nil {
		s.OthersAnswered = t.othersAnswered
	}
	return s, ok
}

// listing reports whether the list that began at a moment is still under way.
func (t *waiting) listing(began time.Time) bool {
	s := t.d.loop.Snapshot()
	return s.PhaseStart.Equal(began) || s.Beside.PhaseStart.Equal(began)
}

// unanswered reports whether the call of an inspection is still under way.
func (t *waiting) unanswered(p *health.PodInspection) bool {
	return slices.ContainsFunc(t.d.loop.Snapshot().Inspections, func(i *relist.Inspection) bool {
		now, _, _ := i.State()
		return now.UID == p.UID && now.CallStart.Equal(p.CallStart)
	})
}

// othersAnswered reports whether Version is answered beside a call that hangs.
func (t *waiting) othersAnswered() bool {
	v := t.d.version.facts()
	return !v.Ended.IsZero() && (v.HangsSince.IsZero() || time.Since(v.HangsSince) < sweepGrace)
}

// sweepGrace is how long the Version call under way may be unanswered while single
// containers are asked for.
const sweepGrace = 500 * time.Millisecond

// asker asks the held connection for single containers.
type asker struct{ rt *runtime }

// Ask implements chain.Asker.
func (a asker) Ask(ctx context.Context, t chain.Target) error {
	op := cri.OpContainerStatus
	if t.Sandbox {
		op = cri.OpPodSandboxStatus
	}
	c, err := a.rt.client(op)
	if err != nil {
		return err
	}
	if t.Sandbox {
		err = c.SandboxAnswers(ctx, t.ID)
	} else {
		err = c.ContainerAnswers(ctx, t.ID)
	}
	var e *cri.Error
	switch {
	case !errors.As(err, &e):
		return err
	case e.Code == cri.CodeDeadlineExceeded && ctx.Err() != nil:
		return chain.ErrHangs
	case e.Code == cri.CodeUnavailable || e.Code == cri.CodeCanceled:
		return err
	default:
		return nil // an error is an answer
	}
}
