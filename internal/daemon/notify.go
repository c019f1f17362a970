package daemon

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notifier tells systemd how plegd is. It writes from a goroutine of its own: a
// systemd that does not read must not hold up the judge.
type notifier struct {
	messages chan string
	interval time.Duration // of the watchdog, 0 when there is none
	fed      time.Time
	status   string
	sent     time.Time
}

// statusEvery is the least time between two STATUS= lines that differ only in
// their numbers.
const statusEvery = 5 * time.Second

// watchdogEvery is the most time between two notifications of the watchdog.
const watchdogEvery = 10 * time.Second

func newNotifier() *notifier {
	n := &notifier{messages: make(chan string, 16)}
	// systemd wants a notification at least every WATCHDOG_USEC. Three in that
	// time leave room for a late one; more, where that is minutes, leave nearly
	// all of it to a pause of the machine.
	if every, err := sd.SdWatchdogEnabled(false); err == nil {
		n.interval = min(every/3, watchdogEvery)
	}
	return n
}

// String names the task.
func (n *notifier) String() string { return "notify" }

// Run writes until ctx ends, says so, and returns nil.
func (n *notifier) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			return nil
		case m := <-n.messages:
			_, _ = sd.SdNotify(false, m) // without systemd this does nothing
		}
	}
}

func (n *notifier) send(m string) {
	select {
	case n.messages <- m:
	default:
	}
}

func (n *notifier) ready() { n.send(sd.SdNotifyReady) }

// feedWatchdog is called by the supervisor as long as it is alive: from the judge,
// never from the relist loop, or a hung runtime would get plegd killed.
func (n *notifier) feedWatchdog(now time.Time) {
	if n.interval > 0 && now.Sub(n.fed) >= n.interval {
		n.fed = now
		n.send(sd.SdNotifyWatchdog)
	}
}

// setStatus sets the STATUS= line: at once when changed is true, else now and then.
func (n *notifier) setStatus(status string, changed bool, now time.Time) {
	if status == n.status || !changed && now.Sub(n.sent) < statusEvery {
		return
	}
	n.status, n.sent = status, now
	n.send("STATUS=" + status)
}
