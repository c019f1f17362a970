package relist

import (
	"context"
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
	// Uncached leaves the status cache empty, for a caller who does not read it:
	// statuses are half a kilobyte a pod. Evented needs them.
	Uncached bool
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

	in       chan *cri.ContainerEvent // the runtime's events
	queued   atomic.Int64             // bytes of those in in
	dropped  atomic.Uint64            // those that did not fit into in
	requests requests

	// What follows belongs to the goroutine of Run.
	records   *records
	pace      *pace
	reinspect map[string]*podRecord
	late      []*podRecord        // answered late in the last relist
	now       Snapshot            // the next snapshot in the making
	ended     time.Time           // the end of the last relist
	early     bool                // a kubelet would not wait for its period either
	soon      bool                // the next relist is a catching up
	waiting   []chan struct{}     // closed when the next relist has ended
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
		cache:     newCache(cfg.Uncached && cfg.Mode != Evented),
		records:   newRecords(),
		pace:      newPace(cfg.InspectConcurrency),
		reinspect: map[string]*podRecord{},
		in:        make(chan *cri.ContainerEvent, cfg.EventCapacity),
		requests:  requests{wake: make(chan struct{}, 1)},
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
		case <-l.requests.wake:
			var now bool
			if now, early = l.handleRequests(); !now {
				timer.Reset(time.Until(l.due()))
				continue
			}
		case <-timer.C:
			// What was asked meanwhile holds for this relist: it may be the last one for
			// long, and what is listened for counts from the first that begins after it.
			l.handleRequests()
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
	defer answer(l.waiting)
	l.waiting = nil
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
	if rt, ok := l.rt.(changeReporter); ok {
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
