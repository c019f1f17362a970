package daemon

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

// statusEvery is the most time between two messages to systemd.
const statusEvery = 5 * time.Second

// notifier tells systemd how plegd is. It writes from a goroutine of its own: a
// systemd that does not read must not hold up the judge.
type notifier struct {
	messages chan string
	interval time.Duration // between two messages
	sent     time.Time
}

func newNotifier() *notifier {
	n := &notifier{messages: make(chan string, 16), interval: statusEvery}
	// systemd wants a notification at least every WATCHDOG_USEC. Three in that
	// time leave room for a late one.
	if every, err := sd.SdWatchdogEnabled(false); err == nil && every > 0 {
		n.interval = min(every/3, statusEvery)
	}
	return n
}

// Run writes until ctx ends, says so, and returns nil. Without systemd nothing happens.
func (n *notifier) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			return nil
		case m := <-n.messages:
			_, _ = sd.SdNotify(false, m)
		}
	}
}

func (n *notifier) send(m string) {
	select {
	case n.messages <- m:
	default:
	}
}

// judged feeds the watchdog and sets the STATUS= line: at once when changed is true, else
// when the interval has passed. The judge calls it, never the relist loop, or a hung
// runtime would get plegd killed.
func (n *notifier) judged(s *health.Snapshot, changed bool, now time.Time) {
	if changed || now.Sub(n.sent) >= n.interval {
		n.sent = now
		n.send(sd.SdNotifyWatchdog + "\nSTATUS=" + view.Line(s))
	}
}
