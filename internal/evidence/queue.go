package evidence

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

const (
	queueTimeout = 500 * time.Millisecond
	// newListenerFor is how long a listener is new: it is sampled at each tick.
	newListenerFor = 2 * time.Second
)

// NewQueue returns the source of the accept queue of the listener at path, which returns
// "" while there is none. One netlink dump of the listening unix sockets in plegd's
// network namespace gives queue, limit, file and inode at once; it needs AF_NETLINK and
// the kernel's unix_diag, and no privilege.
//
// No listener is a sample, not an error: a Queue that is not Listening.
func NewQueue(path func() string) *Watch[health.Queue] {
	return NewWatch(Spec[health.Queue]{
		Name: "queue", Every: 1, Timeout: queueTimeout, Gather: newQueueSource(path).gather,
		Again: func(v *health.Queue) bool {
			return v.Length > 0 || !v.Listening || v.At.Sub(v.ListeningSince) < newListenerFor
		},
		Store: func(e *health.Evidence, v *health.Queue) { e.Queue = v },
	})
}

type queueSource struct {
	path   func() string
	finder listenerFinder

	listener sockdiag.Socket // of the last sample; inode 0 where there was none
	cookies  bounded.Since[uint64]
	waiting  time.Time
	fell     time.Time
}

func newQueueSource(path func() string) *queueSource { return &queueSource{path: path} }

func (q *queueSource) gather(ctx context.Context) (*health.Queue, error) {
	path := q.path()
	if path == "" {
		q.listener, q.waiting = sockdiag.Socket{}, time.Time{}
		return nil, ErrNoData
	}
	s, found, err := q.finder.find(ctx, path)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !found {
		q.listener, q.waiting = sockdiag.Socket{}, time.Time{}
		q.cookies.Clear()
		return &health.Queue{At: now}, nil
	}
	same := s.Cookie == q.listener.Cookie
	fell := same && s.RQueue < q.listener.RQueue
	switch {
	case !same:
		q.fell = time.Time{}
	case fell:
		q.fell = now
	}
	if !same || fell || s.RQueue == 0 {
		q.waiting = time.Time{} // the connections are being accepted, or gone with the listener
	}
	q.listener = s
	if s.RQueue > 0 && q.waiting.IsZero() {
		q.waiting = now
	}
	return &health.Queue{
		At: now, Listening: true, Inode: uint64(s.Inode), ListeningSince: q.cookies.Update(now, s.Cookie)[s.Cookie],
		Length: int(s.RQueue), Limit: int(s.WQueue), WaitingSince: q.waiting, FellAt: q.fell,
	}, nil
}
