package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/logging"
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
	// roundTimeout is the time after which a round that hangs is reported.
	roundTimeout = 10 * time.Minute
	// sweepGrace is how long the Version call under way may be unanswered while single
	// containers are asked for.
	sweepGrace = 500 * time.Millisecond
)

// waiting follows the chain of waiting while a call hangs. While none does it looks
// at the last verdict and at nothing else.
type waiting struct {
	*parts

	log       *zap.Logger
	published func() *health.Snapshot
	news      signal
	last      health.Symptom // zero for none
}

// Run follows until ctx ends, and then returns nil. A round that hangs in a read of
// /proc keeps nothing from ending.
func (t *waiting) Run(ctx context.Context) error {
	var e *chain.Explorer // nil while no call hangs
	var round bounded.Slot[health.Chain]
	var failed logging.OnChange[string]
	var next time.Time
	return every(ctx, waitingTick, func() {
		if round.Busy() {
			return
		}
		s, ok := t.symptom(time.Now())
		switch {
		case !ok && e != nil:
			e = nil
			t.chain.Store(nil)
			return
		case !ok || time.Now().Before(next):
			return
		case e == nil:
			e = chain.NewExplorer(t.cfg.ProcFS, t.cfg.SysFS, asker{t.runtime})
		}
		next = time.Now().Add(exploreEvery)
		if time.Since(s.Since) > oldFault {
			next = time.Now().Add(exploreLess)
		}
		c, err := round.Do(ctx, roundTimeout, func(context.Context) (health.Chain, error) { return e.Explore(ctx, s), nil })
		if err == nil {
			t.publish(c)
		} else if ctx.Err() == nil {
			t.chain.Store(nil)
			if _, changed := failed.Set(err.Error()); changed {
				t.log.Error("the wait chain cannot be followed", zap.Error(err))
			}
		}
	})
}

// publish keeps a chain for the next judgement, which is made at once where the chain
// leads to somebody else than before.
func (t *waiting) publish(c health.Chain) {
	was, is := t.chain.Swap(&c).Culprit(), c.Culprit()
	if is != nil && (was == nil || was.Kind != is.Kind || was.Name != is.Name || was.PID != is.PID) {
		t.news.send()
	}
}

// symptom returns where the chain begins, by the last verdict.
func (t *waiting) symptom(now time.Time) (s chain.Symptom, ok bool) {
	published := t.published()
	f := published.Facts
	f.Version = t.version.facts() // the judgement may be older than the answer to Version
	if t.last, ok = health.FindSymptom(&f, &published.Verdict, now, t.last); !ok {
		return s, false
	}
	of := t.last
	s = chain.Symptom{
		Process: of.Process, Kind: of.Kind, Operation: of.Operation, Since: of.Since, Called: of.Called,
		Sandboxes:  of.Operation == cri.OpListPodSandbox || of.Operation == cri.OpPodSandboxStatus,
		General:    of.Operation == cri.OpStatus,
		RuntimePID: t.sources.PID(), DaemonPID: health.HopPID(&f),
		Pod:   func(id string) string { name, _ := t.runtime.podOf(id); return name },
		Lasts: func() bool { return true }, OthersAnswered: t.othersAnswered,
	}
	if p := f.At(published.Verdict.Hop).Evidence.Process; p != nil && p.Lock != nil && p.Lock.HolderPID > 0 {
		s.Lock, s.LockedPID = p.Lock, p.PID
	}
	switch {
	case of.Operation == health.EveryCall:
		s.OthersAnswered = func() bool { return false }
	case of.IsList():
		s.Lasts = func() bool { return t.listing(of.Called) }
	case of.Suspected:
		s.Lasts = func() bool { return t.inspecting(of.UID, of.Called) }
	}
	var first []string
	if c := f.Evidence.Children; c != nil {
		for _, child := range c.Stuck {
			first = append(first, child.Sandbox)
		}
	}
	s.Targets = func() []chain.Target { return t.runtime.targets(s.Sandboxes, of.UID, first) }
	return s, true
}

// listing reports whether the list that began at a moment is still under way.
func (t *waiting) listing(began time.Time) bool {
	s := t.loop.Snapshot()
	return s.PhaseStart.Equal(began) || s.Beside.PhaseStart.Equal(began)
}

// inspecting reports whether the call of a pod's inspection is still under way.
func (t *waiting) inspecting(uid string, called time.Time) bool {
	return slices.ContainsFunc(t.loop.Snapshot().Inspections, func(i *relist.Inspection) bool {
		now, _, _ := i.State()
		return now.UID == uid && now.CallStart.Equal(called)
	})
}

// othersAnswered reports whether Version is answered beside a call that hangs.
func (t *waiting) othersAnswered() bool {
	v := t.version.facts()
	return !v.Ended.IsZero() && (v.HangsSince.IsZero() || time.Since(v.HangsSince) < sweepGrace)
}

// asker asks the held connection for single containers.
type asker struct{ rt *runtime }

// Ask implements chain.Asker.
func (a asker) Ask(ctx context.Context, t chain.Target) error {
	err := a.rt.Answers(ctx, t.Sandbox, t.ID)
	var e *health.CallError
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
