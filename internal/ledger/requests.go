package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// askedAfter is how much later than the last data that was received a request is sent at least: what is sent
	// sooner may acknowledge that data, as HTTP/2 does.
	askedAfter = time.Second
	// ackedConnect is what the kernel counts as acknowledged where nothing was sent: the SYN. A client may connect ahead.
	ackedConnect = 1
	// maxDoublings bounds the time between two attempts to connect: the kernel's is 120 s at most.
	maxDoublings = 7
	// answerLimit is the age from which a request is unanswered: longer than a registry takes, and shorter than
	// containerd waits since 2.0 (30 s), before the next attempt.
	answerLimit = 20 * time.Second
	// silenceLimit is the same where it is not known who sent last: a request that follows a TLS handshake, or an answer
	// that stopped in the middle. It is longer than any client keeps a connection without a request (CRI-O: 90 s).
	silenceLimit = 100 * time.Second
	// podWaits is the age from which a sandbox without a container shows that something holds up its pod.
	podWaits = 30 * time.Second
)

// requests notes the connections on which a server, such as an image registry, has read a request of the runtime's,
// or of a hop behind it, and does not answer, and the attempts to connect that nobody answers.
func (p *pass) requests(ctx context.Context, clients []proc.TCPClient, hops map[proc.ID]descriptors) {
	for _, c := range clients {
		current, err := p.readTimes(ctx, c.TCPSocket)
		silent := p.silenceOf(&current)
		if err != nil || current.Unread > 0 || silent < limit { // what it has not read is no fault of the server's
			continue
		}
		o := p.keepRequest(c, &current)
		o.begun = p.moment.Add(-silent)
		p.resolveServer(ctx, o, c.Server)
		if o.waiter != 0 {
			o.waiter = pidOf(hops, c.Inode)
		}
	}
}

// silenceOf returns for how long nothing has gone either way on a connection.
func (p *pass) silenceOf(s *proc.TCPSocket) time.Duration {
	if s.State != proc.SynSent {
		return min(s.LastSent, s.LastReceived)
	}
	files := proc.Files{}
	linear := max(0, files.Number(p.Table.ProcFS, "sys/net/ipv4/tcp_syn_linear_timeouts")) // since Linux 6.5
	return lastedFor(s.Retransmits, int(linear))
}

// lastedFor returns how long an attempt to connect that was repeated so often has lasted at least. The kernel repeats it after
// one second as often as linear says, and once more; then after twice the time of before (TCP_TIMEOUT_INIT).
func lastedFor(repeated, linear int) time.Duration {
	equal := min(repeated, linear+1)
	doublings := min(repeated-equal, maxDoublings)
	return time.Duration(equal+2<<doublings-2) * time.Second
}

// resolveServer finds the process that has the server's end, 0 where that is elsewhere. The waiter is set to other than 0
// where the obligation counts.
func (p *pass) resolveServer(ctx context.Context, o *obligation, server uint32) {
	o.socket.Inode = server
	if server != 0 && (o.debtor == 0 || p.isDue(o)) {
		p.resolveDebtor(ctx, o)
	}
	isKnown := server == 0 || o.debtor != 0
	o.waiter = 0
	if isKnown && (o.limit != silenceLimit || !o.known && p.podWaits()) {
		o.waiter = p.pids[0]
	}
}

// keepRequest notes a silent connection.
func (p *pass) keepRequest(c proc.TCPClient, current *proc.TCPSocket) *obligation {
	sent := current.Acked > ackedConnect
	isAsked := sent && (current.Received == 0 || current.LastReceived-current.LastSent >= askedAfter)
	found := obligation{
		identity: identity{kind: unanswered, id: c.Cookie}, name: c.Remote.String(), limit: answerLimit,
		evidence: fmt.Sprintf("its request is not answered at %s", c.Remote),
	}
	switch {
	case current.State == proc.SynSent:
		found.limit = limit // most clients give up after 30 s
		found.evidence = fmt.Sprintf("its attempt to connect to %s is not answered, and was repeated %d times", c.Remote, current.Retransmits)
	case !isAsked:
		found.limit = silenceLimit
		found.evidence = fmt.Sprintf("nothing comes on its connection to %s, which it keeps open for an answer", c.Remote)
	}
	o := p.keep(found)
	o.limit = found.limit
	o.evidence = found.evidence
	return o
}

// podWaits reports whether a pod has a sandbox for long and no container that is created or runs, as while an image
// is pulled.
func (p *pass) podWaits() bool { return len(p.barePods()) > 0 }

// barePods returns the sandboxes of such pods, each pod once.
func (p *pass) barePods() (out []*cri.Entry) {
	listed := p.Listed()
	started := map[string]bool{} // by sandbox
	for _, e := range listed {
		if !e.Sandbox && e.State != cri.StateExited {
			started[e.SandboxID] = true
		}
	}
	pods := map[string]bool{} // by UID
	for _, e := range listed {
		age, isKnown := e.Age(p.moment)
		if e.Sandbox && e.State == cri.StateRunning && !started[e.ID] && isKnown && age >= podWaits && !pods[e.PodUID] {
			pods[e.PodUID] = true
			out = append(out, e)
		}
	}
	return out
}
