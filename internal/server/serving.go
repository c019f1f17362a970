package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// serving remembers of each of a server's addresses whether it is served: a
// port that is busy is exported, not only logged.
type serving struct {
	mu     sync.Mutex
	at     time.Time         // of the last change; zero before the first attempt
	failed map[string]string // address: why it is not served
}

// set notes that an address is served (err is nil) or cannot be.
func (s *serving) set(address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Now()
	if err == nil {
		delete(s.failed, address)
		return
	}
	if s.failed == nil {
		s.failed = map[string]string{}
	}
	s.failed[address] = err.Error()
}

// Source reports whether every address is served, and if not, why; ok is false
// before the first attempt.
func (s *serving) Source() (health.Source, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := make([]string, 0, len(s.failed))
	for _, address := range slices.Sorted(maps.Keys(s.failed)) {
		why = append(why, s.failed[address])
	}
	return health.Source{Up: len(why) == 0, At: s.at, Err: strings.Join(why, "; ")}, !s.at.IsZero()
}
