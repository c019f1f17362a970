package daemon

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/stacks"
)

const (
	// exploreEvery is the time between two rounds of the wait chain, settledEvery once it has led to
	// the same culprit for settledAfter and while its processes stay as they are.
	exploreEvery = time.Second
	settledEvery = 3 * time.Second
	settledAfter = 10 * time.Second
	// roundTimeout is the time after which a round that hangs is reported.
	roundTimeout = 10 * time.Minute
	// sweepGrace is how long the Version call under way may be unanswered while single
	// containers are asked for.
	sweepGrace = 500 * time.Millisecond
	// proofValid is how long what the chain of a call has proved may stand while it holds up nothing, confirmedFor how long
	// it counts after it was last confirmed: the chain of the next call is followed meanwhile.
	proofValid   = 30 * time.Second
	confirmedFor = 5 * time.Second
)

// followChain follows the chain of waiting while a call hangs, until ctx ends, and then
// returns nil. While none does it looks at the last verdict and at nothing else.
func (d *Daemon) followChain(ctx context.Context) error {
	f := &chainFollower{Daemon: d, inside: &stacks.Inside{Reader: stacks.Reader{Table: d.sources.Table}}}
	return d.pace.each(ctx, func() { f.tick(ctx) })
}

// chainFollower follows the chain of one symptom after the other.
type chainFollower struct {
	*Daemon

	explorer *chain.Explorer // nil while no call hangs
	inside   *stacks.Inside  // the runtime's goroutines
	// round is a round of the chain: one that hangs in a read of /proc keeps nothing from ending.
	round   bounded.Slot[facts.Chain]
	symptom facts.Symptom // the last one, zero for none
	due     time.Time     // the next round
	settled settledRound
	failure string // the last that was logged
	proof   proof
}

// settledRound is the last round whose chain led where it has led for settledAfter; zero where it did not.
type settledRound struct {
	made    time.Time
	symptom facts.Symptom
	states  []proc.Process // of the processes of the chain after it
}

// tick looks for a symptom, and follows its chain once when that is due.
func (f *chainFollower) tick(ctx context.Context) {
	if f.round.Busy() {
		return
	}
	published := *f.Published()
	published.Facts.Version = *f.version.Load() // the judgement may be older than the answer to Version
	found, ok := health.FindSymptom(&published.Facts, &published.Verdict, time.Now(), f.symptom)
	f.symptom = found
	f.noteProof(&published.Verdict)
	if !ok {
		f.forget()
		f.confirmProof(ctx, &published)
		return
	}
	if time.Now().Before(f.due) {
		return
	}
	f.due = time.Now().Add(exploreEvery)
	if f.isSettled() {
		f.confirm()
		return
	}
	if f.explorer == nil {
		f.explorer = chain.New(f.sources.Table, f.cfg.SysFS, f.client.Answers)
	}
	s := f.chainSymptom(&published.Facts, &published.Verdict, found)
	c, err := f.round.Do(ctx, roundTimeout, func(context.Context) (facts.Chain, error) {
		return f.inside.Complete(ctx, f.explorer.Explore(ctx, s), s.Symptom, stacks.Targets(&published.Facts)), nil
	})
	switch {
	case err == nil:
		f.publishChain(c)
		f.noteStates(&c)
	case ctx.Err() == nil:
		f.fail(err)
	}
}

// isSettled reports whether another round would find the same: it was made lately, and no process
// of the chain has changed since.
func (f *chainFollower) isSettled() bool {
	last := &f.settled
	isSame := last.symptom.Operation == f.symptom.Operation && last.symptom.Process == f.symptom.Process
	lately := time.Since(last.made) < settledEvery
	return f.chain.Load() != nil && isSame && lately && !slices.ContainsFunc(last.states, func(known proc.Process) bool {
		return f.stateOf(known.PID) != known
	})
}

// confirm makes the last chain as young as its processes' states.
func (f *chainFollower) confirm() {
	c := *f.chain.Load()
	c.At = time.Now()
	f.chain.Store(&c)
}

// noteStates keeps how the processes of a chain are once it has led to its end for long.
func (f *chainFollower) noteStates(c *facts.Chain) {
	f.settled = settledRound{}
	culprit := c.Culprit()
	if culprit == nil || c.At.Sub(facts.Later(culprit.Since, f.symptom.Since)) < settledAfter {
		return
	}
	f.settled = settledRound{made: c.At, symptom: f.symptom}
	for _, link := range c.Links {
		if link.PID != 0 {
			f.settled.states = append(f.settled.states, f.stateOf(link.PID))
		}
	}
}

// stateOf returns a process as it is now, as far as it shows whether it stands still.
func (f *chainFollower) stateOf(pid int) proc.Process {
	p, _ := proc.ReadStat(f.cfg.ProcFS, pid) // zero of one that has ended
	return proc.Process{PID: pid, Start: p.Start, State: p.State}
}

// forget drops the chain of a symptom that is over.
func (f *chainFollower) forget() {
	if f.explorer != nil {
		f.explorer = nil
		f.chain.Store(nil)
	}
}

// fail drops the chain that cannot be followed, and logs each error once.
func (f *chainFollower) fail(err error) {
	f.chain.Store(nil)
	if err.Error() != f.failure {
		f.failure = err.Error()
		f.log.Error("the wait chain cannot be followed", zap.Error(err))
	}
}

// publishChain keeps a chain for the next judgement, which is made at once where the chain
// leads to another culprit than the last one.
func (d *Daemon) publishChain(c facts.Chain) {
	previous := d.chain.Swap(&c).Culprit()
	culprit := c.Culprit()
	if culprit != nil && (previous == nil || !culprit.IsSame(previous)) {
		d.news.Send()
	}
}

// chainSymptom returns where the chain of a symptom begins.
func (d *Daemon) chainSymptom(f *facts.Facts, v *facts.Verdict, symptom facts.Symptom) chain.Symptom {
	sandboxes := symptom.Operation == cri.OpListPodSandbox || symptom.Operation == cri.OpPodSandboxStatus
	first := stuckSandboxes(f)
	return chain.Symptom{
		Symptom:        symptom,
		RuntimePID:     d.sources.PID(),
		DaemonPID:      health.HopPID(f),
		Pod:            d.pod,
		Locked:         f.At(v.Hop).Evidence.Process,
		Lasts:          func() bool { return d.symptomLasts(&symptom) },
		OthersAnswered: func() bool { return symptom.Operation != facts.EveryCall && d.versionAnswered() },
		Targets:        func() []*cri.Entry { return d.targets(sandboxes, symptom.UID, first) },
	}
}

// versionAnswered reports whether Version is answered beside a call that hangs.
func (d *Daemon) versionAnswered() bool {
	v := d.version.Load()
	return !v.Ended.IsZero() && (v.HangsSince.IsZero() || time.Since(v.HangsSince) < sweepGrace)
}

// symptomLasts reports whether the call of a symptom is still unanswered.
func (d *Daemon) symptomLasts(symptom *facts.Symptom) bool {
	switch {
	case symptom.IsList():
		s := d.loop.Snapshot()
		return s.Relist.PhaseStart.Equal(symptom.Called) || s.Beside.PhaseStart.Equal(symptom.Called)
	case symptom.Suspected && symptom.UID != "":
		return d.inspecting(symptom.UID, symptom.Called)
	}
	return true
}

// stuckSandboxes returns the ids of the sandboxes whose shims are stuck.
func stuckSandboxes(f *facts.Facts) (ids []string) {
	c := f.Evidence.Children
	if c == nil {
		return nil
	}
	for _, child := range c.Stuck {
		ids = append(ids, child.Sandbox)
	}
	return ids
}

// inspecting reports whether the call of a pod's inspection is still under way.
func (d *Daemon) inspecting(uid string, called time.Time) bool {
	return slices.ContainsFunc(d.loop.Snapshot().Inspections, func(i *relist.Inspection) bool {
		pod, _, _ := i.State()
		return pod.UID == uid && pod.CallStart.Equal(called)
	})
}

// targets returns the containers, or the sandboxes, of the last lists that may be asked
// for: those of the sandboxes named first at first, then the newest. uid limits
// them to one pod, "" for all.
func (d *Daemon) targets(sandboxes bool, uid string, first []string) (out []*cri.Entry) {
	list, containers := d.client.LastLists()
	if !sandboxes {
		list = containers
	}
	newest := func(a, b *cri.Entry) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) }
	all := slices.SortedStableFunc(slices.Values(list), newest)
	for _, named := range []bool{true, false} {
		for _, e := range all {
			if (uid == "" || e.PodUID == uid) && slices.Contains(first, e.SandboxID) == named {
				out = append(out, e)
			}
		}
	}
	return out
}

// listed returns the sandbox or container of the last lists with an id, and zero without
// one whose pod is known.
func (d *Daemon) listed(id string) *cri.Entry {
	sandboxes, containers := d.client.LastLists()
	for _, list := range [][]*cri.Entry{sandboxes, containers} {
		if i := slices.IndexFunc(list, func(e *cri.Entry) bool { return e.ID == id && e.PodName != "" }); i >= 0 {
			return list[i]
		}
	}
	return &cri.Entry{}
}

// pod returns namespace and name of the pod of a sandbox or container, "" while unknown.
func (d *Daemon) pod(id string) string { return d.listed(id).Pod() }
