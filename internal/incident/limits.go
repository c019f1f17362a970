package incident

import "time"

// Limits bound what incidents take of a node's disk and of plegd's memory.
type Limits struct {
	// Number and TotalBytes bound the files together; when there is more, the
	// oldest closed ones go.
	Number     int
	TotalBytes int64
	// FileBytes bounds one file: moments are left out of its middle.
	FileBytes int
	// Moments bounds one timeline; the first KeepFirst always stay.
	Moments, KeepFirst int
	// Burst incidents may be opened at once, and one more every Every; what
	// comes on top continues in the last one.
	Burst int
	Every time.Duration
	// Again is how soon after an incident's end one of its reasons counts as the
	// same fault: it continues in the same incident.
	Again time.Duration
	// Pending bounds the closed incidents that wait to be stored.
	Pending int
	// WriteBurst files may be written at once, and one more every WriteEvery:
	// each is synced, on a disk that may be the illness itself.
	WriteBurst int
	WriteEvery time.Duration
}

// DefaultLimits are the limits in force.
func DefaultLimits() Limits {
	return Limits{
		Number: 200, TotalBytes: 64 << 20, FileBytes: 1 << 20, Moments: 64, KeepFirst: 16,
		Burst: 60, Every: time.Minute, Again: 3 * time.Second, Pending: 8,
		WriteBurst: 8, WriteEvery: time.Second,
	}
}

const (
	// relistsKept is how many relists before an incident are kept in it.
	relistsKept = 120
	// SlowestKept is how many inspections are kept of each of these.
	SlowestKept = 3
	// reasonsKept bounds the reasons of one incident; the table has fewer.
	reasonsKept = 64
	// gapsKept bounds the gaps of one incident.
	gapsKept = 32
	// shutdownWithin is how young an incident is that plegd's own end closes:
	// a node that shuts down stops the runtime before plegd.
	shutdownWithin = 30 * time.Second
	// resumeSettle is how long all must be well for an incident to end that goes
	// on from before a restart: plegd's own evidence has yet to come in.
	resumeSettle = 5 * time.Second
	// heartbeat is how often an open incident is written although nothing
	// changes, so that its length is known after a crash.
	heartbeat = 30 * time.Second
	// retryAfter is the time between two attempts to write where one failed.
	retryAfter = 5 * time.Second
	// stopWithin is how long plegd's end waits for the last write.
	stopWithin = 500 * time.Millisecond
	// readWithin is how long a reader of one incident waits for the disk, and
	// readers how many may wait.
	readWithin = 2 * time.Second
	readers    = 4
)

// bucket allows n things at once and one more every period.
type bucket struct {
	n      int
	period time.Duration
	left   int
	since  time.Time
}

func (b *bucket) take(now time.Time) bool {
	if b.since.IsZero() {
		b.left, b.since = b.n, now
	}
	if more := int(now.Sub(b.since) / b.period); more > 0 {
		b.left = min(b.n, b.left+more)
		b.since = b.since.Add(time.Duration(more) * b.period)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// wait is how long take will go on to say no.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.since.IsZero() || b.left > 0 {
		return 0
	}
	return max(0, b.period-now.Sub(b.since))
}
