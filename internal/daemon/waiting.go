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
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/stacks"
)

const (
	// exploreEvery is the time between two rounds of the wait chain.
	exploreEvery = time.Second
	// roundTimeout is the time after which a round that hangs is reported.
	roundTimeout = 10 * time.Minute
	// sweepGrace is how long the Version call under way may be unanswered while single
	// containers are asked for.
	sweepGrace = 500 * time.Millisecond
)

// followChain follows the chain of waiting while a call hangs, until ctx ends, and then
// returns nil. While none does it looks at the last verdict and at nothing else. A round
// that hangs in a read of /proc keeps nothing from ending.
func (d *Daemon) followChain(ctx context.Context) error {
	var e *chain.Explorer // nil while no call hangs
	var round bounded.Slot[facts.Chain]
	var last facts.Symptom // zero for none
	var next time.Time
	failed := ""
	inside := &stacks.Inside{Reader: stacks.Reader{Table: d.sources.Table}}
	return d.pace.each(ctx, func() {
		if round.Busy() {
			return
		}
		published := *d.Published()
		f, v := &published.Facts, &published.Verdict
		f.Version = *d.version.Load() // the judgement may be older than the answer to Version
		found, ok := health.FindSymptom(f, v, time.Now(), last)
		last = found
		switch {
		case !ok && e != nil:
			e = nil
			d.chain.Store(nil)
			return
		case !ok || time.Now().Before(next):
			return
		case e == nil:
			e = chain.New(d.sources.Table, d.cfg.SysFS, d.client.Answers)
		}
		next = time.Now().Add(exploreEvery)
		s := d.symptom(f, v, last)
		c, err := round.Do(ctx, roundTimeout, func(context.Context) (facts.Chain, error) {
			return inside.Complete(ctx, e.Explore(ctx, s), s.Symptom, stacks.Targets(f)), nil
		})
		if err == nil {
			d.publishChain(c)
		} else if ctx.Err() == nil {
			d.chain.Store(nil)
			if text := err.Error(); text != failed {
				failed = text
				d.log.Error("the wait chain cannot be followed", zap.Error(err))
			}
		}
	})
}

// publishChain keeps a chain for the next judgement, which is made at once where the chain
// leads to somebody else than before.
func (d *Daemon) publishChain(c facts.Chain) {
	was, is := d.chain.Swap(&c).Culprit(), c.Culprit()
	if is != nil && (was == nil || was.Kind != is.Kind || was.Name != is.Name || was.PID != is.PID) {
		d.news.Send()
	}
}

// symptom returns where the chain begins.
func (d *Daemon) symptom(f *facts.Facts, v *facts.Verdict, of facts.Symptom) chain.Symptom {
	sandboxes := of.Operation == cri.OpListPodSandbox || of.Operation == cri.OpPodSandboxStatus
	s := chain.Symptom{
		Symptom:    of,
		RuntimePID: d.sources.PID(), DaemonPID: health.HopPID(f),
		Pod:    d.pod,
		Locked: f.At(v.Hop).Evidence.Process,
		Lasts:  func() bool { return true },
		OthersAnswered: func() bool { // of.Operation hangs, and Version beside it is answered
			v := d.version.Load()
			answered := !v.Ended.IsZero() && (v.HangsSince.IsZero() || time.Since(v.HangsSince) < sweepGrace)
			return answered && of.Operation != facts.EveryCall
		},
	}
	switch {
	case of.IsList():
		s.Lasts = func() bool {
			s := d.loop.Snapshot()
			return s.Relist.PhaseStart.Equal(of.Called) || s.Beside.PhaseStart.Equal(of.Called)
		}
	case of.Suspected:
		s.Lasts = func() bool { return d.inspecting(of.UID, of.Called) }
	}
	var first []string
	if c := f.Evidence.Children; c != nil {
		for _, child := range c.Stuck {
			first = append(first, child.Sandbox)
		}
	}
	s.Targets = func() []*cri.Entry { return d.targets(sandboxes, of.UID, first) }
	return s
}

// inspecting reports whether the call of a pod's inspection is still under way.
func (d *Daemon) inspecting(uid string, called time.Time) bool {
	return slices.ContainsFunc(d.loop.Snapshot().Inspections, func(i *relist.Inspection) bool {
		now, _, _ := i.State()
		return now.UID == uid && now.CallStart.Equal(called)
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
func (d *Daemon) pod(id string) string {
	if e := d.listed(id); e.PodName != "" {
		return e.PodNamespace + "/" + e.PodName
	}
	return ""
}
