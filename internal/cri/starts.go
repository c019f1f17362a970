package cri

import (
	"cmp"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/plain"
)

// maxFailedStarts bounds the failed starts that are kept, the newest.
const maxFailedStarts = 16

// FailedStart is a container that has ended without having run.
type FailedStart struct {
	ID, Name, PodUID string
	CreatedAt        int64  // in nanoseconds since the epoch
	Message          string // the runtime's
	// HasRun is set where the container of that name has run before in the same pod: what it asks for can be had.
	HasRun bool
}

// maxRun bounds the containers of which it is known that they have run.
const maxRun = 4096

// podContainer is a container of a pod, whatever its attempt.
type podContainer struct{ podUID, name string }

// starts are the results of starts, by the statuses that the runtime has answered. The zero value is ready for use, by several
// goroutines.
type starts struct {
	mu     sync.Mutex
	failed []FailedStart // since the last that succeeded, the oldest first
	last   int64         // when that one began to run, in nanoseconds since the epoch
	run    map[podContainer]bool
}

// note notes how the start of a container ended, by its status.
//
// One that never ran has no start time on containerd, and that of its creation on cri-dockerd. CRI-O removes it at once.
func (s *starts) note(c *runtimeapi.ContainerStatus) {
	hasRun := c.GetStartedAt() > c.GetCreatedAt()
	isFailed := c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !hasRun && c.GetMessage() != ""
	if !hasRun && !isFailed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	container := podContainer{
		podUID: plain.CutTo(c.GetLabels()[labelPodUID], maxName), name: plain.CutTo(c.GetMetadata().GetName(), maxName),
	}
	if hasRun && c.GetMessage() == "" {
		s.noteRun(container)
		s.last = max(s.last, c.GetStartedAt())
		s.failed = slices.DeleteFunc(s.failed, func(f FailedStart) bool { return f.CreatedAt <= s.last })
		return
	}
	isKnown := slices.ContainsFunc(s.failed, func(f FailedStart) bool { return f.ID == c.GetId() })
	if !isFailed || isKnown || c.GetCreatedAt() <= s.last {
		return
	}
	s.failed = append(s.failed, FailedStart{
		ID:        plain.CutTo(c.GetId(), maxName),
		Name:      container.name,
		PodUID:    container.podUID,
		HasRun:    s.run[container],
		CreatedAt: c.GetCreatedAt(),
		Message:   plain.CutTo(c.GetMessage(), maxMessage),
	})
	slices.SortFunc(s.failed, func(a, b FailedStart) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	s.failed = s.failed[max(0, len(s.failed)-maxFailedStarts):]
}

// noteRun keeps that a container has run.
func (s *starts) noteRun(container podContainer) {
	if s.run == nil || len(s.run) >= maxRun {
		s.run = map[podContainer]bool{}
	}
	s.run[container] = true
}

// FailedStarts returns the containers that the runtime could not start, since it last started one, the oldest first.
func (c *Client) FailedStarts() []FailedStart {
	s := &c.session.Load().starts
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failed)
}
