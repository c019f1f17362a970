package daemon

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/ledger"
)

// keepLedger looks for what the runtime is owed, until ctx ends, and then returns nil. A pass that
// hangs in a read of /proc keeps nothing from ending.
func (d *Daemon) keepLedger(ctx context.Context) error {
	var pass bounded.Slot[ledger.Result]
	var ended time.Time
	interval := ledger.Interval
	return d.pace.each(ctx, func() {
		wait := interval
		if d.suspects() {
			wait = min(wait, ledger.SuspectInterval)
		}
		if pass.Busy() || time.Since(ended) < wait {
			return
		}
		begun := time.Now()
		result, err := pass.Do(ctx, roundTimeout, func(ctx context.Context) (ledger.Result, error) {
			return d.ledger.Pass(ctx), nil
		})
		if ctx.Err() != nil {
			return
		}
		if d.owed.publish(result, begun, err) {
			d.news.Send()
		}
		ended = time.Now()
		interval = cmp.Or(result.Next, ledger.Interval) // a pass that failed has no result
	})
}

func (d *Daemon) suspects() bool {
	return mayOwe(&d.Published().Facts.Evidence, d.sources.IsAlert())
}

// mayOwe reports whether the runtime may be owed something that its ledger has not seen: a call is late,
// as an alert shows, a thread of its waits in the kernel, the kubelet ends pods, or its calls that start some run into their
// deadlines. A stopped runtime is the reason itself.
func mayOwe(evidence *facts.Evidence, isAlert bool) bool {
	p := evidence.Process
	if p != nil && p.Stopped() {
		return false
	}
	isInKernel := func(t facts.BlockedThread) bool { return !t.Asleep && p.At.Sub(t.Since) >= inKernel }
	if isAlert || p != nil && slices.ContainsFunc(p.Blocked, isInKernel) {
		return true
	}
	k := evidence.Kubelet
	return k != nil && k.EndingPods > 0 || health.StartsTimeOut(k)
}

const (
	// inKernel is the time in D from which a thread of the runtime does not just wait for a disk.
	inKernel = time.Second
	// slowLately is the time from a slow call of the kubelet's until its calls are no longer slow: it starts pods again within it.
	slowLately = time.Minute
)

// lastKubelet is the newest sample of the kubelet, an empty one before the first.
func (d *Daemon) lastKubelet() *facts.Kubelet {
	return cmp.Or(d.Published().Facts.Evidence.Kubelet, &facts.Kubelet{})
}

// endsPods reports whether the kubelet says that it ends pods.
func (d *Daemon) endsPods() bool { return d.lastKubelet().EndingPods > 0 }

// callsAreSlow reports whether the kubelet's calls for pods were slow lately.
func (d *Daemon) callsAreSlow() bool { return wereSlow(d.lastKubelet()) }

// wereSlow reports whether a kubelet's calls for pods were slow lately.
func wereSlow(k *facts.Kubelet) bool { return time.Since(k.SlowCallAt) < slowLately }

// startsWait returns since when pods wait to be started while no call of the kubelet's for that ends.
func (d *Daemon) startsWait() time.Time { return d.lastKubelet().NoStartSince }

// startsFail returns since when the kubelet's calls that start pods fail, zero while they do not, and for a call that has run into
// its deadline.
func (d *Daemon) startsFail() time.Time { return failAtOnceSince(d.lastKubelet()) }

// failAtOnceSince is since when a kubelet's calls that start pods fail without having waited, zero while they do not.
func failAtOnceSince(k *facts.Kubelet) time.Time {
	if !failsNow(k.Sandboxes) || k.Sandboxes.Errors < failedCalls || health.StartsTimeOut(k) {
		return time.Time{}
	}
	return k.Sandboxes.Since
}

// createsFail reports whether the kubelet's calls that create containers fail.
func (d *Daemon) createsFail() bool { return failsNow(d.lastKubelet().Containers) }

// failedCalls is so many failures in a row that they are not of one call alone, which a kubelet makes again.
const failedCalls = 3

// failsNow reports whether calls have failed again lately.
func failsNow(calls *facts.StartCalls) bool {
	return calls != nil && time.Since(calls.LastError) < ledger.Interval+time.Minute
}

// listedByID returns the sandboxes and containers of the last lists, nil before the first.
func (d *Daemon) listedByID() map[string]*cri.Entry {
	sandboxes, containers := d.client.LastLists()
	if sandboxes == nil || containers == nil {
		return nil
	}
	out := make(map[string]*cri.Entry, len(sandboxes)+len(containers))
	for _, e := range slices.Concat(sandboxes, containers) {
		out[e.ID] = e
	}
	return out
}

// listedAt returns when the last list of containers began that has ended.
func (d *Daemon) listedAt() time.Time {
	last := d.client.History(cri.OpListContainers)
	return last.LastOK.Add(-last.LastOKDuration)
}

// inspectionErrors returns the errors with which inspections fail.
func (d *Daemon) inspectionErrors() (out []string) {
	for _, p := range d.Published().Facts.Relist.Failing {
		if p.Err != nil {
			out = append(out, p.Err.Message)
		}
	}
	return out
}

// owed is what the newest pass of the ledger has found, for the next judgement. The zero value is
// that before the first pass.
type owed struct {
	last atomic.Pointer[pass]
}

// pass is one pass of the ledger that has ended.
type pass struct {
	found []facts.Finding
	state facts.Source
}

// publish keeps the result of a pass that began at a moment, or why it failed, and reports whether
// it has to be judged at once: it has found something new.
func (o *owed) publish(result ledger.Result, begun time.Time, err error) bool {
	next := pass{
		found: result.Findings,
		state: facts.Source{Up: err == nil, At: time.Now(), Duration: time.Since(begun), Unread: result.Unread},
	}
	if err != nil {
		next.state.Err = err.Error()
	}
	previous := o.last.Swap(&next)
	return len(next.found) > 0 && (previous == nil || len(previous.found) != len(next.found))
}

// findings returns what the chain of a call has proved that is answered by now, and those of the ledger.
func (d *Daemon) findings() []facts.Finding {
	found := d.owed.findings()
	proven := d.proven.Load()
	if proven == nil {
		return found
	}
	return slices.Concat([]facts.Finding{*proven}, found)
}

// findings returns what the newest pass has found, the oldest first.
func (o *owed) findings() []facts.Finding {
	last := o.last.Load()
	if last == nil {
		return nil
	}
	return last.found
}

// Source returns the state of the newest pass, false before the first.
func (o *owed) Source() (facts.Source, bool) {
	last := o.last.Load()
	if last == nil {
		return facts.Source{}, false
	}
	return last.state, true
}
