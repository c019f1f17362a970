package fakeruntime

import (
	"math"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Churn changes a fraction (0 to 1) of the pods, chosen by the seed, and returns
// how many. In each of them the container that has run longest exits, a new one of
// the same name takes its place with an attempt one higher, and a dead one of that
// name from before is removed, as in a crash loop: so a pod never has more than
// one dead container of a name, and a relist sees ContainerDied, ContainerStarted
// and, after the first times, ContainerRemoved. What a call leaves over of a
// pod is carried into the next, so 0.001 of 110 pods is one in about nine calls.
func (m *Model) Churn(fraction float64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.carry += math.Max(0, math.Min(fraction, 1)) * float64(len(m.pods))
	n := min(int(m.carry), len(m.pods))
	m.carry -= math.Trunc(m.carry)
	for _, i := range m.churn.Perm(len(m.pods))[:n] {
		m.restartOldest(m.pods[i])
	}
	return n
}

func (m *Model) restartOldest(p *pod) {
	var running *container
	for _, c := range p.containers {
		if c.entry.State == cri.ContainerState_CONTAINER_RUNNING {
			running = c
			break
		}
	}
	if running == nil {
		return
	}
	name := running.entry.GetMetadata().GetName()
	for _, c := range p.containers {
		if c.entry.State == cri.ContainerState_CONTAINER_EXITED && c.entry.GetMetadata().GetName() == name {
			m.removeContainer(c)
			break
		}
	}
	codes := []int32{0, 1, 137, 143}
	m.exitContainer(running, codes[m.churn.IntN(len(codes))], "")
	m.startContainer(m.addContainer(p, name))
}
