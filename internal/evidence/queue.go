package evidence

import (
	"context"
	"errors"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

// findAgain is how long a listener that answers is taken for the right one
// without looking again. What happens on the way is seen at once: that it is
// closed by sock_diag, that its file is replaced or unlinked by stat(2).
const findAgain = 15 * time.Second

// NewQueue watches the accept queue of the listener at path, which returns ""
// while there is none: every second, twice a second while something may be wrong,
// and four times a second while somebody waits in it or another listener than
// before has just been found. It needs AF_NETLINK and the kernel's unix_diag, but
// no privilege; it sees the listeners of its own network namespace only.
//
// No listener is an answer, not an error: a Queue that is not Listening.
func NewQueue(procfs string, path func() string) *Watch[health.Queue] {
	q := newQueueSource(procfs, path)
	var w *Watch[health.Queue]
	w = NewWatch(Spec[health.Queue]{
		Name: "queue", Period: queuePeriod, Calm: queueCalm, Timeout: queueTimeout,
		Fast: hurried, Urgent: func(v *health.Queue) bool {
			return v.Length > 0 || !v.Listening || v.At.Sub(v.ListeningSince) < justFound
		},
		Gather: func(ctx context.Context) (*health.Queue, error) {
			v, err := q.gather(ctx)
			if err == nil && v.Length > 0 && !w.alert.Load() {
				time.Sleep(servedWithin)
				v, err = q.gather(ctx)
			}
			return v, err
		},
		Store: func(e *health.Evidence, v *health.Queue) { e.Queue = v },
	})
	return w
}

// queuePeriod lies between two looks at the queue, queueCalm while all is well;
// queueTimeout limits one. For justFound a listener is new.
const (
	queuePeriod  = 500 * time.Millisecond
	queueCalm    = time.Second
	justFound    = 2 * time.Second
	queueTimeout = 500 * time.Millisecond
)

// hurried is the time between two samples while the end of a fault may come any
// moment.
const hurried = 250 * time.Millisecond

// servedWithin is how long a connection waits in a queue that is well: while all is
// well one that is seen to wait is looked for again after it. plegd's own fresh dial and
// the look at the queue often come at one moment.
const servedWithin = 5 * time.Millisecond

// queueSource remembers the listener between samples: one request tells its
// queue, while to find it takes the table of all sockets.
type queueSource struct {
	path   func() string
	finder listenerFinder
	looker pathLooker

	listener sockdiag.Socket // inode 0 while there is none
	place    socketPlace     // where it was found
	foundAt  time.Time
	since    time.Time // when a sample first showed it
	waiting  time.Time
	fell     time.Time
}

func newQueueSource(procfs string, path func() string) *queueSource {
	return &queueSource{path: path, finder: listenerFinder{procfs: procfs}, looker: pathLooker{look: lookAt}}
}

func (q *queueSource) gather(ctx context.Context) (*health.Queue, error) {
	path := q.path()
	if path == "" {
		q.listener, q.waiting = sockdiag.Socket{}, time.Time{}
		return nil, ErrNoData
	}
	s, found, err := q.ask(ctx, q.looker.at(ctx, path))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !found {
		q.listener, q.waiting = sockdiag.Socket{}, time.Time{}
		return &health.Queue{At: now}, nil
	}
	if s.Cookie != q.listener.Cookie {
		q.since, q.fell = now, time.Time{}
	} else if s.RQueue < q.listener.RQueue {
		q.fell = now
	}
	if s.Cookie != q.listener.Cookie || s.RQueue < q.listener.RQueue || s.RQueue == 0 {
		q.waiting = time.Time{} // those who waited are being served, or gone with it
	}
	q.listener = s
	if s.RQueue > 0 && q.waiting.IsZero() {
		q.waiting = now
	}
	return &health.Queue{
		At: now, Listening: true, Inode: uint64(s.Inode), ListeningSince: q.since,
		Length: int(s.RQueue), Limit: int(s.WQueue), WaitingSince: q.waiting, FellAt: q.fell,
	}, nil
}

// ask asks the listener that is known, or finds one.
func (q *queueSource) ask(ctx context.Context, p socketPlace) (s sockdiag.Socket, found bool, err error) {
	if q.listener.Inode != 0 && p.equal(q.place) && time.Since(q.foundAt) < findAgain {
		s, err = q.finder.diag.One(ctx, q.listener.Inode, sockdiag.ShowRQLen)
		if err == nil && s.Listens() && s.Cookie == q.listener.Cookie {
			return s, true, nil
		}
		if err != nil && !errors.Is(err, sockdiag.ErrGone) {
			return sockdiag.Socket{}, false, err
		}
	}
	s, _, found, err = q.finder.find(ctx, p)
	if err != nil {
		return sockdiag.Socket{}, false, err
	}
	q.place, q.foundAt = p, time.Now()
	return s, found, nil
}
