package evidence

import (
	"context"
	"net"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// lookAgain is the time between two looks at an accept queue that is not empty.
const lookAgain = 100 * time.Millisecond

// LookFirst returns a dial of the socket at path() that looks before it connects. Each
// connection to a runtime that does not accept stays in its accept queue, closed or
// not; where one waits already, another would only wait behind it. So the dial waits
// until the queue is empty, and connects then, or ends with ctx. The caller cannot
// distinguish that from a connection that waits in the queue.
//
// It connects at once where there is nothing to be seen (no listener, or
// sock_diag does not answer), and where the queue is full: connect(2) then fails
// and leaves nothing behind.
func LookFirst(path func() string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		at := path()
		if err := untilEmpty(ctx, &queueSource{path: func() string { return at }}); err != nil {
			return nil, err
		}
		return cri.DialPath(at)(ctx)
	}
}

// untilEmpty waits until nobody is seen to wait in the queue. The error is the
// context's.
func untilEmpty(ctx context.Context, queue *queueSource) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, queueTimeout)
		q, err := queue.gather(limited)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || q.Length == 0 || q.Length > q.Limit {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
