package proc

import (
	"os"
	"sync"
	"time"
)

// quotaInterval is the time between two searches for CPU quotas above plegd.
const quotaInterval = time.Minute

// Throttling adds up for how long CPU quotas have held plegd itself, for several goroutines at once.
type Throttling struct {
	tree CgroupTree

	mu  sync.Mutex
	due time.Time // when quotas are searched for again
	// limited are the cgroups with a quota, with the time that it had taken when it was found.
	limited map[string]time.Duration
}

// NewThrottling returns the throttling of this process, whose cgroups procfs and sysfs show.
func NewThrottling(procfs, sysfs string) *Throttling {
	unread := func(string, error) {} // then nothing is known of it
	return &Throttling{tree: NewCgroupTree(procfs, sysfs, NewFiles(unread)), limited: map[string]time.Duration{}}
}

// Total returns the time since the quotas were found, summed over their levels and, as the kernel
// counts it, over CPUs. It reads nothing while there is no quota.
func (t *Throttling) Total() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.due) {
		t.due = time.Now().Add(quotaInterval)
		t.search()
	}
	total := time.Duration(0)
	for dir, first := range t.limited {
		s, ok := t.tree.CPUStat(dir)
		if ok {
			total += s.Time - first
		}
	}
	return total
}

// search finds the cgroups of this process that have a quota by now.
func (t *Throttling) search() {
	groups, err := t.tree.Of(os.Getpid())
	if err != nil {
		return
	}
	for dir := range t.tree.Up(groups, "cpu") {
		_, isKnown := t.limited[dir]
		s, ok := t.tree.CPUStat(dir)
		if ok && !isKnown && t.tree.HasQuota(dir) {
			t.limited[dir] = s.Time
		}
	}
}
