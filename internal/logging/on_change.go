package logging

import "sync"

// OnChange holds the value that was logged last, so that a lasting condition is
// logged once. The zero value is ready for use. It is safe for concurrent use.
type OnChange[T comparable] struct {
	mu   sync.Mutex
	last T
}

// Set stores v. It returns the previous value, initially the zero value, and
// reports whether v differs from it.
func (o *OnChange[T]) Set(v T) (last T, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, o.last = o.last, v
	return last, last != v
}
