package bounded

import "time"

// Since remembers since when each of a set of keys has held. The zero value is
// ready for use, by one goroutine at a time.
type Since[K comparable] struct{ at map[K]time.Time }

// Hold returns since when key has held without interruption: now for a new one.
func (s *Since[K]) Hold(now time.Time, key K) time.Time {
	if at, ok := s.at[key]; ok {
		return at
	}
	if s.at == nil {
		s.at = map[K]time.Time{}
	}
	s.at[key] = now
	return now
}

// While is Hold for a condition that may not hold: it forgets the key then and
// returns the zero time.
func (s *Since[K]) While(now time.Time, key K, holds bool) time.Time {
	if !holds {
		delete(s.at, key)
		return time.Time{}
	}
	return s.Hold(now, key)
}

// Update replaces the set: a key that held before keeps its time, a new one gets
// now, and the others are forgotten. It returns the set, which the caller must not
// change.
func (s *Since[K]) Update(now time.Time, keys ...K) map[K]time.Time {
	next := make(map[K]time.Time, len(keys))
	for _, k := range keys {
		next[k] = now
		if at, ok := s.at[k]; ok {
			next[k] = at
		}
	}
	s.at = next
	return next
}

// Clear forgets every key.
func (s *Since[K]) Clear() { clear(s.at) }
