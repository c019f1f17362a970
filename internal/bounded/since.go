package bounded

import "time"

// Since remembers since when each of a set of keys has held. The zero value is
// ready for use, by one goroutine at a time.
type Since[K comparable] struct{ began map[K]time.Time }

// Update replaces the set: a key that held before keeps its time, a new one gets
// now, and the others are forgotten. It returns the set, which the caller must not
// change.
func (s *Since[K]) Update(now time.Time, keys ...K) map[K]time.Time {
	next := make(map[K]time.Time, len(keys))
	for _, k := range keys {
		next[k] = now
		if began, ok := s.began[k]; ok {
			next[k] = began
		}
	}
	s.began = next
	return next
}
