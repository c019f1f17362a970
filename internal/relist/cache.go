package relist

import (
	"maps"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// PodStatus is the outcome of a pod's last inspection.
type PodStatus struct {
	UID, Namespace, Name string
	// IPs are the pod's addresses; they are kept when its sandboxes have exited
	// and the runtime names none any more, as the kubelet keeps them.
	IPs        []string
	Sandboxes  []*cri.SandboxStatus
	Containers []*cri.ContainerStatus
	// Err is why the inspection failed, nil when it succeeded.
	Err *cri.Error
	// At is when the inspection began, or when the runtime made the event that
	// told it.
	At time.Time
}

// exitCode returns the exit code of a container of the pod.
func (s *PodStatus) exitCode(id string) (int32, bool) {
	for _, c := range s.Containers {
		if c.ID == id {
			return c.ExitCode, true
		}
	}
	return 0, false
}

// Cache holds the last status of every pod. A status in it never changes.
type Cache struct {
	mu       sync.RWMutex
	pods     map[string]*PodStatus
	observed time.Time
	empty    bool // it stays so
}

func newCache(empty bool) *Cache { return &Cache{pods: map[string]*PodStatus{}, empty: empty} }

// Get returns the last status of a pod, nil for a pod it does not know.
func (c *Cache) Get(uid string) *PodStatus {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pods[uid]
}

// Len is the number of pods that have a status.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.pods)
}

// Observed is the start of the last relist that everything in the cache is at
// least as new as; zero before the first. While the loop relies on events it is
// moved on every CacheTick without a relist, as the kubelet does.
func (c *Cache) Observed() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.observed
}

func (c *Cache) set(s *PodStatus) {
	if c.empty {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.pods[s.UID]
	if old != nil && old.At.After(s.At) {
		return // an event has told of a later moment
	}
	if old != nil && len(s.IPs) == 0 && s.Err == nil && !anyReady(s.Sandboxes) {
		s.IPs = old.IPs
	}
	c.pods[s.UID] = s
}

func anyReady(sandboxes []*cri.SandboxStatus) bool {
	for _, s := range sandboxes {
		if s.Ready {
			return true
		}
	}
	return false
}

func (c *Cache) remove(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
}

func (c *Cache) setObserved(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.observed) {
		c.observed = t
	}
}

// keep forgets every pod that known does not hold.
func (c *Cache) keep(known func(uid string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.pods, func(uid string, _ *PodStatus) bool { return !known(uid) })
}
