package view

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

func (b builder) evidence(e *health.Evidence) EvidenceDocument {
	d := EvidenceDocument{
		Queue:       b.queue(e.Queue),
		Listener:    b.listener(e.Listener),
		Connections: b.connections(e.Connections),
		Process:     b.process(e.Process),
		Children:    b.children(e.Children),
		Cgroup:      b.cgroup(e.Cgroup),
		Node:        nodeDocument(e.Node),
		Kubelet:     b.kubelet(e.Kubelet),
		Docker:      b.docker(e.Docker),
		Sources:     make(map[string]SourceDocument, len(e.Sources)),
	}
	for name, s := range e.Sources {
		said := b.redact.text(s.Err)
		if s.Kept {
			said += "; what it said before still counts"
		}
		d.Sources[name] = SourceDocument{Up: s.Up, At: utc(s.At), Seconds: s.Duration.Seconds(), Error: said}
	}
	return d
}

func (b builder) queue(q *health.Queue) *QueueDocument {
	if q == nil {
		return nil
	}
	d := &QueueDocument{At: utc(q.At), Listening: q.Listening, WaitingSeconds: b.ageOrNil(q.WaitingSince)}
	if q.Listening {
		d.Length, d.Limit = new(q.Length), new(q.Limit)
	}
	return d
}

func (b builder) listener(l *health.Listener) *ListenerDocument {
	if l == nil {
		return nil
	}
	return &ListenerDocument{
		At: utc(l.At), PID: positive(l.PID), Comm: l.Comm, Command: b.redact.text(l.Command), Unit: b.redact.text(l.Unit), Seconds: b.age(l.Since),
	}
}

func (b builder) connections(c *health.Connections) *ConnectionsDocument {
	if c == nil {
		return nil
	}
	d := &ConnectionsDocument{
		At: utc(c.At), Accepted: c.Accepted, Unread: c.Unread, UnreadBytes: c.UnreadBytes,
		UnreadSeconds: b.ageOrNil(c.UnreadSince), Stuck: make([]StuckClientDocument, 0, len(c.Stuck)),
	}
	for _, s := range c.Stuck {
		d.Stuck = append(d.Stuck, StuckClientDocument{
			PID: positive(s.PID), Comm: s.Comm, State: s.State,
			UnsentBytes: s.UnsentBytes, UnreadBytes: s.UnreadBytes, Seconds: b.age(s.Since),
		})
	}
	return d
}

func (b builder) process(p *health.Process) *ProcessDocument {
	if p == nil {
		return nil
	}
	d := &ProcessDocument{
		At: utc(p.At), PID: p.PID, Comm: p.Comm, Command: b.redact.text(p.Command), Unit: b.redact.text(p.Unit), Alive: p.Alive, Start: timeOrNil(p.Start),
		OpenFDs: notNegative(p.OpenFDs), MaxFDs: notNegative(p.MaxFDs),
		Blocked: make([]BlockedDocument, 0, len(p.Blocked)), WaitChannels: append([]string{}, p.WaitChannels...),
		CPU: p.CPU, CPUDelay: p.Delay, Restarts: p.RestartsTotal,
	}
	for _, t := range p.Blocked {
		d.Blocked = append(d.Blocked, BlockedDocument{TID: t.TID, Seconds: b.age(t.Since), WaitChannel: t.Channel, Syscall: t.Syscall})
	}
	if p.Alive {
		d.UpSeconds = b.ageOrNil(p.Start)
	}
	if p.Threads != nil {
		d.Threads = make(map[string]int)
		for _, state := range ThreadStates() {
			d.Threads[state] = p.Threads[state]
		}
	}
	if l := p.Lock; l != nil {
		d.Lock = &LockDocument{HolderPID: l.HolderPID, HolderComm: l.HolderComm, File: b.redact.text(l.File), Seconds: b.age(l.Since)}
	}
	return d
}

func (b builder) children(c *health.Children) *ChildrenDocument {
	if c == nil {
		return nil
	}
	return &ChildrenDocument{At: utc(c.At), Shims: c.Shims, Stuck: b.childList(c.Stuck), Old: b.childList(c.Old)}
}

// childList names the sandboxes only where names may be shown: an id leads to a
// pod.
func (b builder) childList(children []health.Child) []ChildDocument {
	out := make([]ChildDocument, 0, len(children))
	for _, c := range children {
		d := ChildDocument{PID: c.PID, Comm: c.Comm, State: c.State, Seconds: b.age(c.Since)}
		if b.names && c.Sandbox != "" {
			d.Sandbox = new(c.Sandbox)
		}
		out = append(out, d)
	}
	return out
}

func (b builder) cgroup(c *health.Cgroup) *CgroupDocument {
	if c == nil {
		return nil
	}
	d := &CgroupDocument{
		At: utc(c.At), Path: b.redact.text(c.Path), Frozen: c.Frozen,
		Throttled: c.Throttled, ThrottledPeriods: c.ThrottledPeriods, ThrottledTotal: c.ThrottledTotal.Seconds(),
		PIDs: c.PIDs, PIDsMax: positive(c.PIDsMax), Memory: c.Memory,
	}
	if c.MemoryMax > 0 {
		d.MemoryMax = new(c.MemoryMax)
	}
	d.MemoryLimits = make([]MemoryLimitDocument, 0, len(c.MemoryLimits))
	for _, l := range c.MemoryLimits {
		d.MemoryLimits = append(d.MemoryLimits, MemoryLimitDocument{
			Path: b.redact.text(l.Path), Usage: l.Usage, High: positive(l.High), Max: positive(l.Max),
			Events: l.HighEvents + l.MaxEvents, OutOfMemory: l.OOM,
		})
	}
	return d
}

func (b builder) docker(d *health.Docker) *DockerDocument {
	if d == nil || d.At.IsZero() {
		return nil
	}
	return &DockerDocument{
		ProbeDocument: b.probe(d.Probe), Socket: d.Socket, AnsweredAt: timeOrNil(b.wall(d.AnsweredAt)),
		Daemon: b.dockerProcess(d.Daemon), Containerd: b.dockerProcess(d.Containerd),
	}
}

func (b builder) dockerProcess(p *health.DockerProcess) *DockerProcessDocument {
	if p == nil {
		return nil
	}
	return &DockerProcessDocument{
		Socket: p.Socket, Queue: b.queue(p.Queue), Process: b.process(p.Process), Frozen: p.Frozen, DownSeconds: b.ageOrNil(p.DownSince),
	}
}

func nodeDocument(n *health.Node) *NodeDocument {
	if n == nil {
		return nil
	}
	return &NodeDocument{
		At: utc(n.At), CPUSome: pressure(n.CPUSome), MemorySome: pressure(n.MemorySome), MemoryFull: pressure(n.MemoryFull),
		IOSome: pressure(n.IOSome), IOFull: pressure(n.IOFull), CPUIdle: pressure(n.CPUIdle),
		Files: n.Files, FilesMax: n.FilesMax, Threads: n.Threads, ThreadsMax: n.ThreadsMax,
	}
}

func (b builder) kubelet(k *health.Kubelet) *KubeletDocument {
	if k == nil {
		return nil
	}
	return &KubeletDocument{
		At: utc(k.At), OK: k.OK, Refused: k.Refused, Detail: b.redact.text(k.Detail), FailedSeconds: b.ageOrNil(k.FailedSince),
		LastSeen: timeOrNil(b.wall(k.LastSeen)), LastSeenAge: b.ageOrNil(k.LastSeen),
	}
}

func utc(t time.Time) time.Time { return t.UTC().Round(0) }

// pressure is nil for what is not known: facts have -1 there.
func pressure(v float64) *float64 {
	if v < 0 {
		return nil
	}
	return &v
}

func notNegative(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

func positive[T int | int64](n T) *T {
	if n <= 0 {
		return nil
	}
	return &n
}

// downSources returns the names of the sources that do not answer, in order.
func downSources(d *StatusDocument) []string {
	var out []string
	for name, s := range d.Evidence.Sources {
		if !s.Up {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ThreadStates are the values of the label state of MetricProcessThreads.
func ThreadStates() []string { return []string{"R", "S", "D", "T", "Z", "other"} }
