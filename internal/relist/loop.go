package relist

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// The kubelet's constants (pkg/kubelet/kubelet.go: plegChannelCapacity,
// genericPlegRelistPeriod).
const (
	DefaultPeriod        = time.Second
	DefaultEventCapacity = 1000
)

// resultBacklog is how many ended relists wait for Results to be read; older
// ones make way. A reader a few minutes late still sees every relist.
const resultBacklog = 256

// manyJobs is a burst whose garbage is worth giving back at once: some MB.
const manyJobs = 500

// Runtime is what the loop asks. Every call must return soon after its context
// ends. The values are immutable; a slice is valid until the next call.
type Runtime interface {
	ListPodSandbox(context.Context) ([]*cri.Sandbox, error)
	ListContainers(context.Context) ([]*cri.Container, error)
	PodSandboxStatus(ctx context.Context, id string) (*cri.SandboxStatus, error)
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
}

// Config is how the loop runs.
type Config struct {
	// Period lies between the end of a relist and the start of the next.
	Period time.Duration
	// InspectConcurrency is how many pods are inspected at once, at least 1.
	InspectConcurrency int
	// InspectTimeout limits the inspection of one pod.
	InspectTimeout time.Duration
	// EventCapacity is the event channel's; 0 means DefaultEventCapacity.
	EventCapacity int
	// Mode is what the runtime's events are used for.
	Mode Mode
}

// Loop is the generic PLEG.
type Loop struct {
	rt  Runtime
	cfg Config
	obs Observer

	events  chan Event
	results chan *Result
	ready   chan struct{}
	snap    atomic.Pointer[Snapshot]
	cache   *Cache

	in      chan *cri.ContainerEvent // the runtime's events
	queued  atomic.Int64             // bytes of those in in
	dropped atomic.Uint64            // those that did not fit into in
	asks    asks

	// What follows belongs to the goroutine of Run.
	records   *records
	pace      *pace
	reinspect map[string]*podRecord
	late      []*podRecord        // answered late in the last relist
	now       Snapshot            // the next snapshot in the making
	ended     time.Time           // the end of the last relist
	early     bool                // a kubelet would not wait for its period either
	soon      bool                // the next relist is a catching up
	listing   bool                // lists are under way
	inspects  bool                // inspections are
	burst     bool                // the last relist inspected many pods
	counted   map[string]podCount // while the loop relies on events
	trust     *trust
	hints     hints
	ticks     <-chan time.Time // of the cache's clock
}

// New returns a loop that has yet to run. obs may be nil.
func New(rt Runtime, cfg Config, obs Observer) *Loop {
	if cfg.EventCapacity == 0 {
		cfg.EventCapacity = DefaultEventCapacity
	}
	if cfg.InspectConcurrency < 1 {
		cfg.InspectConcurrency = 1
	}
	if obs == nil {
		obs = nobody{}
	}
	l := &Loop{
		rt: rt, cfg: cfg, obs: obs,
		events:    make(chan Event, cfg.EventCapacity),
		results:   make(chan *Result, resultBacklog),
		ready:     make(chan struct{}),
		cache:     newCache(),
		records:   newRecords(),
		pace:      newPace(cfg.InspectConcurrency),
		reinspect: map[string]*podRecord{},
		in:        make(chan *cri.ContainerEvent, cfg.EventCapacity),
		asks:      asks{wake: make(chan struct{}, 1)},
		counted:   map[string]podCount{},
		trust:     newTrust(2 * cfg.Period),
		hints:     hints{waiting: map[string]struct{}{}},
	}
	l.now.Period = cfg.Period
	l.publish()
	return l
}

// String names the task.
func (l *Loop) String() string { return "relist" }

// Ready is closed when the first relist has been attempted: it has ended, or has
// been under way for two periods.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Events delivers the events. When nobody reads and the channel is full, events
// are dropped and counted.
func (l *Loop) Events() <-chan Event { return l.events }

// Results delivers every relist that ended, once, in order.
func (l *Loop) Results() <-chan *Result { return l.results }

// Snapshot returns the latest snapshot. It never waits.
func (l *Loop) Snapshot() *Snapshot { return l.snap.Load() }

// Cache returns the status cache.
func (l *Loop) Cache() *Cache { return l.cache }

// Run relists until ctx ends, and then returns nil as soon as the calls under
// way have let go.
func (l *Loop) Run(ctx context.Context) error {
	attempted := sync.OnceFunc(func() { close(l.ready) })
	defer time.AfterFunc(2*l.cfg.Period, attempted).Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	if l.cfg.Mode != Off {
		tick := time.NewTicker(CacheTick)
		defer tick.Stop()
		l.ticks = tick.C
	}
	for {
		early := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.in:
			l.event(e)
			l.relistHinted(ctx)
			continue
		case <-l.ticks:
			l.tick(time.Now())
			continue
		case <-l.asks.wake:
			var now bool
			if now, early = l.heed(); !now {
				timer.Reset(time.Until(l.due()))
				continue
			}
		case <-timer.C:
		}
		l.early = early
		l.relist(ctx)
		if ctx.Err() != nil {
			return nil
		}
		attempted()
		l.ended = time.Now()
		timer.Reset(l.now.Period)
	}
}

func (l *Loop) publish() {
	s := l.now
	l.snap.Store(&s)
}

func (l *Loop) enter(p Phase, at time.Time) {
	l.now.Phase, l.now.PhaseStart = p, at
	l.publish()
}

// relist makes one relist: the seven steps of the kubelet's.
func (l *Loop) relist(ctx context.Context) {
	start := time.Now()
	early := l.early
	l.early, l.soon = false, false
	defer l.asks.answer()()
	if !l.now.LastSeen.IsZero() {
		l.obs.RelistInterval(start.Sub(l.now.LastSeen))
	}
	l.now.Attempts++
	l.now.Start, l.now.ListSandboxes, l.now.ListContainers, l.now.Inspections, l.now.Early = start, 0, 0, nil, early
	l.now.Refused = nil
	l.enter(ListingSandboxes, start)
	res := &Result{Seq: l.now.Attempts, Start: start, Early: early, Hinted: l.hints.inspected}
	l.hints.inspected = nil

	l.listing = true
	var sandboxes []*cri.Sandbox
	var err error
	l.await(func() { sandboxes, err = l.rt.ListPodSandbox(ctx) })
	at := time.Now()
	res.ListSandboxes = at.Sub(start)
	l.now.ListSandboxes = res.ListSandboxes
	var containers []*cri.Container
	if err == nil {
		l.enter(ListingContainers, at)
		l.await(func() { containers, err = l.rt.ListContainers(ctx) })
		listed := time.Now()
		res.ListContainers = listed.Sub(at)
		l.now.ListContainers = res.ListContainers
		at = listed
	}
	l.listing = false
	res.Listed = at
	res.Serial = res.ListSandboxes + res.ListContainers
	if ctx.Err() != nil {
		return // plegd is stopping: this relist says nothing about the runtime
	}
	if err != nil {
		l.records.listsFailed()
		if res.Err = asError(err); res.Err.TooMany {
			// The list came, and the kubelet would read it: that plegd does not is
			// no failure of the runtime's. What it knows stays as it is.
			res.Err = nil
			l.now.LastSeen = start
			l.remember(res.Serial)
		}
		l.end(res)
		return
	}

	// Last seen is the start, and is stored before the inspections: a slow
	// inspection delays the next relist, never this.
	l.now.LastSeen = start
	l.remember(res.Serial)
	if rt, ok := l.rt.(teller); ok {
		l.records.take(sandboxes, containers, rt)
		res.Refused = refused(rt)
		l.now.Refused = res.Refused
	} else {
		l.records.update(sandboxes, containers)
	}
	l.count()
	todo := l.records.pending(l.reinspect)
	l.trust.relisted(start, todo, l.records.gen)
	again := l.late
	l.late = nil
	l.inspects = true
	l.process(ctx, todo, res, at)
	l.inspectAgain(ctx, again, res)
	l.inspects = false
	if ctx.Err() != nil {
		return
	}
	l.sweep()
	l.cache.setObserved(start)
	l.end(res)
}

// remember keeps the recent list times. A published snapshot may hold the old
// slice, so it is never written to.
func (l *Loop) remember(d time.Duration) {
	keep := l.now.Lists
	if len(keep) == recentLists {
		keep = keep[1:]
	}
	l.now.Lists = append(append(make([]time.Duration, 0, recentLists), keep...), d)
}

func (l *Loop) end(res *Result) {
	res.End, res.Period = time.Now(), l.now.Period
	if res.Err == nil {
		l.now.Failures = 0
	} else {
		l.now.Failures++
	}
	l.now.Last = res
	// The runtime of the language keeps for minutes what a burst has used, for
	// another one that seldom comes; and until now its result was held too.
	burst := len(res.Inspections) >= manyJobs
	if l.burst && !burst {
		go debug.FreeOSMemory()
	}
	l.burst = burst
	l.now.Start, l.now.Inspections, l.now.Early = time.Time{}, nil, false
	l.noteTrust(res.End)
	l.enter(Idle, time.Time{})
	l.obs.RelistDone(res.End.Sub(res.Start), res.Serial, res.Err == nil)
	for {
		select {
		case l.results <- res:
			return
		default:
		}
		select { // nobody reads: the oldest makes way
		case <-l.results:
		default:
		}
	}
}

// process inspects the pods of todo, advances their records and delivers their
// events.
func (l *Loop) process(ctx context.Context, todo []work, res *Result, at time.Time) {
	var jobs []*job
	for _, w := range todo {
		if len(w.events) > 0 {
			res.Changed++
		}
		if !w.pod.present() { // a pod that is gone leaves the cache
			l.cache.remove(w.pod.uid)
			l.settle(w, nil)
			continue
		}
		jobs = append(jobs, newJob(w))
	}
	if len(jobs) == 0 {
		l.now.Reinspect = len(l.reinspect)
		return
	}
	for _, j := range jobs {
		res.Inspections = append(res.Inspections, j.inspection)
	}
	l.now.Inspections = res.Inspections
	l.enter(Inspecting, at)

	inspected := l.inspect(ctx, jobs)
	for {
		j, ok := l.awaitJob(inspected)
		if !ok {
			break
		}
		res.Serial += j.spent
		if ctx.Err() != nil {
			continue // stopping: let the others let go
		}
		l.cache.set(j.status)
		l.obs.InspectionDone(j.status.Err == nil)
		if j.status.Err != nil {
			// The record is not advanced, so that the change is seen again.
			res.Failed++
			j.work.pod.reinspect = true
			j.work.pod.failures++
			l.reinspect[j.work.pod.uid] = j.work.pod
			continue
		}
		l.settle(j.work, j.status)
		l.noteLate(j)
	}
	l.now.Reinspect = len(l.reinspect)
}

// settle advances a pod's record and delivers its events. status is nil for a
// pod that is gone.
func (l *Loop) settle(w work, status *PodStatus) {
	p := w.pod
	w.events = l.records.untold(p, w.events)
	if len(w.events) == 0 && p.reinspect {
		w.events = append(w.events, Event{Type: PodSync, PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace})
	}
	p.reinspect, p.failures = false, 0
	delete(l.reinspect, p.uid)
	l.records.advance(p)
	for _, e := range w.events {
		l.deliver(e, status)
	}
}

// deliver hands an event on. status is what is known of its pod, nil for
// nothing.
func (l *Loop) deliver(e Event, status *PodStatus) {
	l.obs.EventGenerated(e.Type)
	if e.Type == ContainerChanged {
		return // internal: nobody gets these
	}
	if e.Type == ContainerDied && status != nil {
		e.ExitCode, e.HasExitCode = status.exitCode(e.ID)
	}
	select {
	case l.events <- e:
	default:
		l.obs.EventDiscarded()
		l.now.Discarded, l.now.LastDiscard = l.now.Discarded+1, time.Now()
	}
}

// job is one pod's inspection: what is to be asked, and what came of it.
type job struct {
	work       work
	sandboxes  []string
	containers []string
	inspection *Inspection
	timeout    time.Duration // 0: InspectTimeout
	running    int           // inspections at once when it began, itself included
	// status outlives the job, in the cache: nothing else may hang on it.
	status *PodStatus
	spent  time.Duration // the calls' times together
}

func newJob(w work) *job {
	j := &job{work: w, status: &PodStatus{}, inspection: &Inspection{UID: w.pod.uid, Namespace: w.pod.namespace, Name: w.pod.name, Failures: w.pod.failures}}
	for _, r := range w.pod.records {
		switch {
		case r.cur == gone:
		case r.sandbox:
			j.sandboxes = append(j.sandboxes, r.id)
		default:
			j.containers = append(j.containers, r.id)
		}
	}
	return j
}

// inspect runs the jobs, as many at once as pace allows and at most
// InspectConcurrency, and delivers each when it is done.
func (l *Loop) inspect(ctx context.Context, jobs []*job) <-chan *job {
	done := make(chan *job, len(jobs))
	l.pace.start(time.Now())
	go func() {
		var workers sync.WaitGroup
		for _, j := range jobs {
			running, ok := l.pace.enter(ctx)
			if !ok {
				break
			}
			workers.Go(func() {
				j.running = running
				j.run(ctx, l.rt, cmp.Or(j.timeout, l.cfg.InspectTimeout), l.pace)
				done <- j
			})
		}
		workers.Wait()
		close(done)
	}()
	return done
}

// run inspects one pod: one PodSandboxStatus per sandbox, one ContainerStatus
// per container, ids from the list. What was removed in between is no error.
func (j *job) run(parent context.Context, rt Runtime, timeout time.Duration, pace *pace) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	began := time.Now()
	p := j.status
	p.UID, p.Namespace, p.Name, p.At = j.inspection.UID, j.inspection.Namespace, j.inspection.Name, began
	out := &InspectionResult{Start: began, End: began}
	took := map[cri.Operation]callTimes{}
	defer func() { pace.leave(began, j.running, took) }()

	ask := func(op cri.Operation, call func() error) bool {
		start, running := time.Now(), pace.calling()
		j.inspection.call.Store(&inspectionCall{op: op, began: began, start: start})
		err := asError(call())
		out.End = time.Now()
		out.Operation, out.LastCall = op, out.End.Sub(start)
		pace.called(op, running, start, out.LastCall)
		took[op] = callTimes{took[op].n + 1, took[op].total + out.LastCall}
		if err == nil || err.Code == cri.CodeNotFound {
			return true
		}
		out.Err, p.Err = err, err
		// The runtime knows the deadline too, and may say so a moment before
		// it is ours.
		out.Cut = err.Code == cri.CodeDeadlineExceeded && out.End.Sub(began) >= timeout*9/10
		return false
	}
	ok := true
	for _, id := range j.sandboxes {
		ok = ok && ask(cri.OpPodSandboxStatus, func() error {
			s, err := rt.PodSandboxStatus(ctx, id)
			if err == nil {
				p.Sandboxes = append(p.Sandboxes, s)
				if len(p.IPs) == 0 && s.Ready {
					p.IPs = s.IPs
				}
			}
			return err
		})
	}
	for _, id := range j.containers {
		ok = ok && ask(cri.OpContainerStatus, func() error {
			s, err := rt.ContainerStatus(ctx, id)
			if err == nil {
				p.Containers = append(p.Containers, s)
			}
			return err
		})
	}
	j.spent = out.End.Sub(began)
	j.inspection.done.Store(out)
}

// asError returns err as the *cri.Error that a Runtime returns; any other error
// becomes one of code Unknown.
func asError(err error) *cri.Error {
	if err == nil {
		return nil
	}
	var e *cri.Error
	if !errors.As(err, &e) {
		e = &cri.Error{Code: cri.CodeUnknown, Message: err.Error()}
	}
	return e
}

type nobody struct{}

func (nobody) RelistDone(time.Duration, time.Duration, bool) {}
func (nobody) RelistInterval(time.Duration)                  {}
func (nobody) EventGenerated(EventType)                      {}
func (nobody) EventDiscarded()                               {}
func (nobody) InspectionDone(bool)                           {}
