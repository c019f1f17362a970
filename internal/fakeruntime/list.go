package fakeruntime

import (
	"math/rand/v2"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The lists return the entries themselves: entries are replaced and never changed,
// so they can be marshalled without the lock. The order is shuffled each time,
// as by a runtime that walks a map.

func (m *Model) listSandboxes(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*cri.PodSandbox, 0, len(m.sandboxes)+len(m.rawSandboxes))
	for _, p := range m.pods { // in the same order for the same seed
		for _, s := range p.sandboxes {
			all = append(all, s.entry)
		}
	}
	return shuffled(m.shuffle, append(all, m.rawSandboxes...), func(s *cri.PodSandbox) bool {
		return (f.GetId() == "" || f.Id == s.GetId()) &&
			(f.GetState() == nil || f.State.State == s.GetState()) &&
			selects(f.GetLabelSelector(), s.GetLabels())
	})
}

func (m *Model) listContainers(f *cri.ContainerFilter) []*cri.Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*cri.Container, 0, len(m.containers)+len(m.rawContainers))
	for _, p := range m.pods {
		for _, c := range p.containers {
			all = append(all, c.entry)
		}
	}
	return shuffled(m.shuffle, append(all, m.rawContainers...), func(c *cri.Container) bool {
		return (f.GetId() == "" || f.Id == c.GetId()) &&
			(f.GetState() == nil || f.State.State == c.GetState()) &&
			(f.GetPodSandboxId() == "" || f.PodSandboxId == c.GetPodSandboxId()) &&
			selects(f.GetLabelSelector(), c.GetLabels())
	})
}

func shuffled[T any](r *rand.Rand, all []T, matches func(T) bool) []T {
	out := all[:0]
	for _, v := range all {
		if matches(v) {
			out = append(out, v)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// findSandboxStatus returns nil if there is no such sandbox.
func (m *Model) findSandboxStatus(id string) *cri.PodSandboxStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.sandboxes[id]; ok {
		return sandboxStatus(s.entry, s.ips)
	}
	for _, s := range m.rawSandboxes {
		if s.GetId() == id {
			return sandboxStatus(s, nil)
		}
	}
	return nil
}

// findContainerStatus returns nil if there is no such container.
func (m *Model) findContainerStatus(id string) *cri.ContainerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.containers[id]; ok {
		return c.status()
	}
	for _, c := range m.rawContainers {
		if c.GetId() == id {
			return containerStatus(c)
		}
	}
	return nil
}
