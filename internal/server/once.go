package server

import (
	"log/slog"
	"sync"
)

// once logs weather: a condition that lasts is said when it begins and when it
// changes, not every time it is met.
type once struct {
	log *slog.Logger

	mu   sync.Mutex
	last string
}

func newOnce(log *slog.Logger) *once { return &once{log: log} }

// warn logs msg unless the last thing that it was asked to log had the same
// text and error.
func (o *once) warn(msg, key string, value any) {
	if !o.isNew(msg + "\x00" + slog.AnyValue(value).String()) {
		return
	}
	o.log.Warn(msg, key, value)
}

// clear forgets what was said, and tells whether there was anything.
func (o *once) clear() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := o.last != ""
	o.last = ""
	return had
}

func (o *once) isNew(s string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s == o.last {
		return false
	}
	o.last = s
	return true
}
