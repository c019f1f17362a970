package ledger

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// Interval is the time between two passes.
	Interval = 10 * time.Second
	// SuspectInterval is the same while Suspects reports true, owedInterval while something is owed.
	SuspectInterval = 4 * time.Second
	owedInterval    = 2 * time.Second
	// soon is the same while the runtime's process is not known: what is owed to it later must not be there before
	// the first pass.
	soon = 250 * time.Millisecond
	// tableAge is how old the process table may be, owedTableAge while something is or may be owed, and for
	// the holders of pipes: about as old as it is while the sources of evidence are sampled fast.
	tableAge     = 30 * time.Second
	owedTableAge = 3 * time.Second
	// limit is the age from which an obligation is followed: of a peer that stands still, and of a
	// killed process. idleLimit is the same for a peer that merely sleeps, and for a pipe.
	limit     = 10 * time.Second
	idleLimit = 30 * time.Second
	// againAfter is the time until it is looked up again whose an obligation is.
	againAfter = time.Minute
	// passTimeout limits one pass.
	passTimeout = 5 * time.Second
)

// The parts that a pass reads, as Unread names them.
const (
	processTable         = "processes"
	unixSockets          = "unix sockets"
	tcpSockets           = "TCP sockets"
	udpSockets           = "UDP sockets"
	descriptorsOfRuntime = "descriptors"
	descriptorsOfShims   = "descriptors of shims"
	clientsOfListeners   = "clients of listeners"
	holdersOfPipes       = "holders of pipes"
	holdersOfSockets     = "holders of sockets"
	pendingSignals       = "pending signals"
	tracers              = "tracers"
	cgroupsOfChildren    = "cgroups of children"
	helpersOfRuntime     = "helpers"
	threadsOfRuntime     = "threads"
	directoriesOfStarts  = "directories of starts"
	programsOfStarts     = "programs of starts"
	writersOfPrograms    = "writers of programs"
	limitsOfRuntime      = "limits"
	mountTable           = "mount table"
	networksOfPods       = "networks of pods"
)

// Options are what the ledger needs to know of the daemon.
type Options struct {
	Table *proc.Table
	Shims *family.Shims // in tables of processes of Table
	SysFS string
	// PIDs returns the runtime's process, and those of the hops behind it; 0 for an unknown one.
	PIDs func() []int
	// Sockets returns the sockets at which these answer calls, under each of their names.
	Sockets func() []string
	// Pod returns the namespace and name of the pod of an id, "" where it is not known.
	Pod func(id string) string
	// Listed returns the sandboxes and containers of the last lists by their ids, nil before the first.
	Listed func() map[string]*cri.Entry
	// ListedAt returns when the last list of containers began.
	ListedAt func() time.Time
	// TakeDropped returns the entries, since the last call, that were running in one list and not in the next one.
	TakeDropped func() []*cri.Entry
	// HasBegun asks the runtime for a sandbox or container, and reports whether it is ready or known.
	HasBegun func(context.Context, *cri.Entry) bool
	// NetworkOf asks the runtime for the path of the network namespace that was made for a sandbox, "" for none.
	NetworkOf func(context.Context, *cri.Entry) (string, error)
	// NetworkPlugins asks the runtime for the paths at which it looks for each of its network plugins.
	NetworkPlugins func(context.Context) ([][]string, error)
	// FailedStarts returns the containers that the runtime could not start since it last started one, the oldest first.
	FailedStarts func() []cri.FailedStart
	// StartsFail returns since when the kubelet's calls that start pods fail without having waited, zero while they do not.
	StartsFail func() time.Time
	// CreatesFail reports whether the kubelet's calls that create containers fail.
	CreatesFail func() bool
	// StartsWait returns since when the kubelet has pods that wait to be started while none of its calls for that ends; zero while
	// it has none, or that is not known.
	StartsWait func() time.Time
	// EndsPods reports whether the kubelet says that it ends pods.
	EndsPods func() bool
	// CallsAreSlow reports whether the kubelet's calls for pods have taken seconds lately.
	CallsAreSlow func() bool
	// Suspects reports whether something may be owed that no pass has seen yet: a call is late, a pod ends, or
	// calls that start pods run into their deadlines.
	Suspects func() bool
	// Failures returns the errors with which calls for single pods fail.
	Failures func() []string
	// Begun is since when something was owed to the plegd before, as Ages had it.
	Begun map[string]time.Time
	// Recalled is what the plegd before knew, as Memory had it.
	Recalled Memory
	// Clock returns the time; nil for the system's. Sleep waits for a time, and reports whether ctx has not ended; nil for
	// bounded.Sleep. StatFS returns the state of the file system at a path, and may hang; nil for statfs(2).
	Clock  func() time.Time
	Sleep  func(context.Context, time.Duration) bool
	StatFS func(place string) (facts.FileSystem, error)
}

// Ledger holds the obligations. Pass is for one goroutine.
type Ledger struct {
	Options

	members *family.Members
	tree    proc.CgroupTree
	owed    map[identity]*obligation
	// settled are the pipes of the runtime that are known to be owed by nobody else.
	settled map[identity]bool
	// ofHops are the descriptors of the runtime and the hops behind it, as the last pass had them, opened these and those
	// of the shims, as of the last look for an owner.
	ofHops map[proc.ID]descriptors
	opened map[proc.ID]descriptors
	// newcomers are the TCP connections that the last pass has seen for the first time, strangers those that were there
	// when the descriptors were last read, and are of none of the hops.
	newcomers, strangers map[uint32]bool

	served map[proc.ID]served // by shims
	// hadProcess are the ids of what is listed as running and has had a process, noticed is when the runtime last took note of
	// an end that was unnoticed.
	hadProcess map[string]bool
	noticed    time.Time
	// servers are the unix sockets to which the runtime has been connected, with its process.
	servers map[string]int
	// dropped are what the lists no longer hold, by ids, until a table of processes that is newer than droppedAt.
	dropped   map[string]*cri.Entry
	droppedAt time.Time
	started   starts
	delayed   map[culprit]*delay
	// ended and ready are the sandboxes that have ended, and those that were ready in the last lists, by their ids.
	ended   map[string]*ended
	ready   map[string]bool
	mounted serverMounts
	leak    []facts.Finding // as unreapedTasks keeps it
	// containersFailed is since when containers cannot be started for a fault of the node, zero while they can.
	containersFailed time.Time
	// lastListed is what Listed returned to the pass before.
	lastListed map[string]*cri.Entry
	worked     time.Time // when the lists last had another entry, or lacked one, zero before
	ages       atomic.Pointer[map[string]time.Time]
	memory     atomic.Pointer[Memory]
	// pipesDue is when the descriptors of the runtime are read again.
	pipesDue time.Time
	passed   bool // the first pass has ended: later findings are new
	// unread are the parts that the pass under way could not read: an obligation may be missing for them.
	unread proc.Unread
	// readTCP and readTimes read the TCP sockets, and the times of one; readUDP the UDP servers with unread datagrams.
	readTCP   func(context.Context, map[uint32]bool) (proc.TCPSockets, error)
	readTimes func(context.Context, proc.TCPSocket) (proc.TCPSocket, error)
	readUDP   func(context.Context) ([]proc.UDPServer, error)
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = bounded.Sleep
	}
	if o.StatFS == nil {
		o.StatFS = statFS
	}
	unread := proc.Unread{}
	return &Ledger{
		Options: o,
		members: family.NewMembers(o.Table),
		tree:    proc.NewCgroupTree(o.Table.ProcFS, o.SysFS, proc.NewFiles(unread.Add)),
		owed:    map[identity]*obligation{},
		settled: map[identity]bool{},
		dropped: map[string]*cri.Entry{},
		servers: map[string]int{},
		delayed: map[culprit]*delay{},
		unread:  unread,

		readTCP:   proc.ReadTCP,
		readTimes: proc.ReadTimes,
		readUDP:   proc.ReadUDP,
	}
}

// Result is what a pass has found.
type Result struct {
	Findings []facts.Finding // the oldest first
	Next     time.Duration   // until the next pass
	// Unread is what could not be read, with the outcome of each: there may be findings that it hides.
	Unread map[string]string
}

// Pass looks for obligations, and returns what those lead to that are old enough.
func (l *Ledger) Pass(ctx context.Context) Result {
	limited, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	pids := l.livePIDs()
	if len(pids) == 0 {
		clear(l.owed)
		return Result{Next: soon}
	}
	p := &pass{Ledger: l, moment: l.Clock(), pids: pids, hops: l.liveHops(pids), serving: l.Sockets(), seen: map[identity]bool{}}
	if !l.passed {
		p.recall()
	}
	p.sockets(limited)
	p.processes(limited)
	p.pipes(limited)
	p.busy()
	p.starts(limited)
	p.hangingStarts()
	p.stops(limited)
	p.deadMounts(limited)
	p.delays(ctx)
	maps.DeleteFunc(l.owed, func(id identity, _ *obligation) bool { return !p.seen[id] })
	l.passed = true
	l.publishAges(p)
	p.publishMemory()
	return Result{Findings: p.findings(ctx), Next: p.next(), Unread: l.unread.Drain()}
}

// next is how long to wait until the next pass.
func (p *pass) next() time.Duration {
	if p.isUrgent() || len(p.dropped) > 0 || p.started.isUnderWay(p.moment) {
		return owedInterval
	}
	if p.callsAreSlow() {
		return slowInterval + rand.N(slowJitter)
	}
	wait := Interval
	if !p.started.last.IsZero() || len(p.started.underWay) > 0 || p.mounted.isNew(p.moment) {
		wait = SuspectInterval
	}
	for _, o := range p.owed {
		isLost := o.kind == lostPod || o.kind == unserved || o.kind == unnoticed
		if isLost && p.age(o) < idleLimit { // it is named then
			wait = min(wait, max(idleLimit-p.age(o), soon))
		}
	}
	return wait
}

// isUrgent reports whether something is owed to the runtime. Data that is merely unread at the moment
// of a pass, as often on a busy node, does not count.
func (l *Ledger) isUrgent() bool {
	for _, o := range l.owed {
		if o.waiter != 0 && !o.isClients && (o.kind != resting || o.stands) && (o.debtor != 0 || o.kind == unanswered) {
			return true
		}
	}
	return false
}

// livePIDs returns the known processes of the runtime and of the hops behind it.
func (l *Ledger) livePIDs() []int {
	return slices.DeleteFunc(l.PIDs(), func(pid int) bool { return pid == 0 })
}

// liveHops returns those of the processes that live.
func (l *Ledger) liveHops(pids []int) (ids []proc.ID) {
	for _, pid := range pids {
		hop, err := l.Table.Alive(pid)
		if err == nil {
			ids = append(ids, hop.ID())
		}
	}
	return ids
}

// pass is one pass.
type pass struct {
	*Ledger
	moment time.Time
	pids   []int     // the runtime, and the hops behind it
	hops   []proc.ID // those of them that have not just ended
	// serving are the sockets at which they answer calls.
	serving []string
	// shims are the shims and conmons of the runtime by their pids, in the process table of the pass.
	shims map[int]proc.Process
	// listed is what Listed returned once that table was read, nil before.
	listed map[string]*cri.Entry
	seen   map[identity]bool
}

// readProcesses returns the processes of the node, nil where they cannot be read.
func (p *pass) readProcesses(ctx context.Context, age time.Duration) *proc.Processes {
	all, err := p.Table.Processes(ctx, age)
	p.unread.Add(processTable, err)
	if err != nil {
		return nil
	}
	p.unread.Add(processTable, all.Unread)
	return all
}

// runtime is the process of the runtime, zero where it has just ended.
func (p *pass) runtime() proc.ID {
	if len(p.hops) == 0 || p.hops[0].PID != p.pids[0] {
		return proc.ID{}
	}
	return p.hops[0]
}

// daemonPID returns the first hop behind the runtime, 0 for none.
func (p *pass) daemonPID() int {
	if len(p.pids) < 2 {
		return 0
	}
	return p.pids[1]
}
