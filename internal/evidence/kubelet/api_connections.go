package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// stalledAfter is the number of unanswered retransmissions in a row from which a
	// connection is stalled: about 1.5 s.
	stalledAfter = 3
	// silentAfter is how long a server has acknowledged nothing, with bytes to acknowledge,
	// until its connection is stalled: without a route nothing is sent again. A kubelet renews
	// its lease every 10 s.
	silentAfter = 12 * time.Second
	// connectsAfter is how long after its start a kubelet is connected at the latest.
	connectsAfter = 15 * time.Second
	// staysAfter is the age of a connection that is not refused: the server closes one on which a request has been
	// refused within a second (golang.org/x/net/http2, goAwayTimeout).
	staysAfter = 1500 * time.Millisecond
	// refusedWithin is how long a connection on which a request is refused usually lasts.
	refusedWithin = 300 * time.Millisecond
	// requestBytes is less than a renewal of the lease has, and more than a ping of HTTP/2.
	requestBytes = 256
	// defaultLease is the default of nodeLeaseDurationSeconds.
	defaultLease = 40 * time.Second
)

// quietAfter is how long no request has gone over a connection until it does not count: two renewals of the lease have
// been missed, a quarter of its duration and 4 % apart. 0 is never, where the kubelet's files could not be read.
func (s *settings) quietAfter() time.Duration {
	if s.Problem != "" {
		return 0
	}
	return cmp.Or(s.lease, defaultLease) * 52 / 100
}

// connection is an established connection. A server that refuses a request lets no other one follow on its connection,
// and closes that once its streams have ended (k8s.io/apiserver, pkg/endpoints/filters/authentication.go).
type connection struct {
	seenAt time.Time // the first sample that had it
	usedAt time.Time // when the server last acknowledged a request on it, seenAt before that
	acked  uint64    // bytes
}

// sockets returns the kubelet's TCP sockets to its API server. The kubelet's descriptors are
// listed only where none of the sockets that are known as its own works.
func (a *API) sockets(ctx context.Context, set *settings) ([]proc.TCPSocket, error) {
	network, err := proc.Link(proc.Path(a.ProcFS, set.PID, "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("the kubelet's network namespace: %w", err)
	}
	plegds, err := proc.Link("/proc/self/ns/net")
	if err != nil || plegds != network {
		return nil, errors.New("the kubelet's connections are in another network namespace than plegd's")
	}
	found, err := proc.TCPTo(ctx, a.client.port, 1<<proc.Established|1<<proc.SynSent)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s proc.TCPSocket) bool {
		return a.client.address.IsValid() && s.Remote.Addr() != a.client.address
	})
	foreign := func(s proc.TCPSocket) bool { return !a.owned[s.Inode] }
	known := slices.DeleteFunc(slices.Clone(found), foreign)
	if slices.ContainsFunc(known, func(s proc.TCPSocket) bool { return a.carries(s, set, time.Now()) }) {
		return known, nil
	}
	a.owned, err = proc.SocketInodes(a.ProcFS, set.PID)
	if err != nil {
		return nil, fmt.Errorf("which connections are the kubelet's cannot be read: %w", err)
	}
	return slices.DeleteFunc(found, foreign), nil
}

// isNew reports whether a socket was not there in the last sample.
func (a *API) isNew(s proc.TCPSocket) bool {
	_, known := a.connections[s.Inode]
	return !known
}

// lasting returns the sockets a moment later, without those that are new since: one on which a request is refused is
// there for a moment.
func (a *API) lasting(ctx context.Context, set *settings, found []proc.TCPSocket) ([]proc.TCPSocket, error) {
	select {
	case <-time.After(refusedWithin):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	later, err := a.sockets(ctx, set)
	return slices.DeleteFunc(later, func(s proc.TCPSocket) bool {
		isSame := func(first proc.TCPSocket) bool { return first.Inode == s.Inode }
		return a.isNew(s) && !slices.ContainsFunc(found, isSame)
	}), err
}

// works reports whether a connection is established and answered.
func works(s proc.TCPSocket) bool {
	silent := s.Unacked > 0 && s.LastAck >= silentAfter
	return s.State == proc.Established && s.Retransmits < stalledAfter && !silent
}

// observe notes the established connections of a sample.
func (a *API) observe(found []proc.TCPSocket, t time.Time) {
	last := a.connections
	a.connections = map[uint32]connection{}
	for _, s := range found {
		a.direct = true
		if s.State != proc.Established {
			continue
		}
		known, isKnown := last[s.Inode]
		if !isKnown {
			known = connection{seenAt: t, usedAt: t, acked: s.Acked}
		}
		isUsed := s.Acked == 0 || s.Acked-known.acked >= requestBytes // 0: not known, before Linux 4.1
		if isUsed {
			known.usedAt = t.Add(-s.LastAck)
		}
		if isUsed && t.Sub(known.seenAt) >= staysAfter {
			a.ackedAt = facts.Later(a.ackedAt, known.usedAt)
		}
		known.acked = s.Acked
		a.connections[s.Inode] = known
	}
}

// carries reports whether the kubelet's requests go over a connection that works.
func (a *API) carries(s proc.TCPSocket, set *settings, t time.Time) bool {
	known, isKnown := a.connections[s.Inode]
	quiet := set.quietAfter()
	return works(s) && (!isKnown || quiet == 0 || t.Sub(known.usedAt) < quiet)
}

// follow describes the connections, and follows since when none works.
func (a *API) follow(found []proc.TCPSocket, out *facts.KubeletAPI, set *settings) {
	a.observe(found, out.At)
	a.watchedAt = cmp.Or(a.watchedAt, out.At)
	a.sampledAt = out.At
	var working, isNew bool
	var quietSince time.Time // since when no request has gone over a connection that stays
	for _, s := range found {
		if s.State != proc.Established {
			out.Connecting++
			continue
		}
		out.Connections++
		out.UnackedBytes = max(out.UnackedBytes, s.Unacked)
		out.Retransmits = max(out.Retransmits, s.Retransmits)
		known := a.connections[s.Inode]
		switch {
		case !works(s):
		case out.At.Sub(known.seenAt) < staysAfter:
			isNew = true
		case a.carries(s, set, out.At):
			working = true
		default:
			quietSince = facts.Later(quietSince, known.usedAt)
		}
	}
	mayConnect := !a.ackedAt.After(set.Started) && out.At.Sub(set.Started) < connectsAfter
	switch {
	case working:
		a.lostSince = time.Time{}
		a.doubtedAt = time.Time{}
	case !a.lostSince.IsZero(), !a.direct, mayConnect:
	case isNew && (a.doubtedAt.IsZero() || out.At.Sub(a.doubtedAt) < staysAfter):
		a.doubtedAt = cmp.Or(a.doubtedAt, out.At)
	default:
		a.lostSince = a.lossBegan(out.At, set.Started, quietSince)
	}
	out.AckedAt = a.ackedAt
	out.LostSince = a.lostSince
	out.Unproven = a.direct && !working && (isNew || a.lostSince.IsZero())
}

// lossBegan returns the first moment from which on no connection is known to have worked.
func (a *API) lossBegan(t, started, quietSince time.Time) time.Time {
	switch {
	case !quietSince.IsZero():
		return quietSince
	case a.ackedAt.After(started):
		return cmp.Or(a.doubtedAt, t)
	}
	return facts.Later(started, a.watchedAt)
}
