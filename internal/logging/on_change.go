package logging

import "sync"

// OnChange remembers what was logged last, so that a condition that lasts is
// logged when it begins and when it changes, and not each time that it is met.
// The zero value is ready for use; it is safe for concurrent use.
type OnChange[T comparable] struct {
	mu   sync.Mutex
	last T
}

// Set stores a value. It returns the last one and reports whether v differs from
// it. The first value is compared with the zero value.
func (o *OnChange[T]) Set(v T) (last T, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, o.last = o.last, v
	return last, last != v
}
