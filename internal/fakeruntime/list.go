package fakeruntime

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The lists hand out the entries themselves: entries are replaced and never
// changed, so a list costs one slice of pointers however long marshalling takes.
// The order is shuffled each time, since a runtime that walks a map has none.

func (m *Model) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*runtimeapi.PodSandbox, 0, len(m.sandboxes)+len(m.rawSandboxes))
	for _, p := range m.pods { // in the same order for the same seed
		for _, s := range p.sandboxes {
			if sandboxMatches(f, s.entry) {
				out = append(out, s.entry)
			}
		}
	}
	for _, s := range m.rawSandboxes {
		if sandboxMatches(f, s) {
			out = append(out, s)
		}
	}
	m.shuffle.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (m *Model) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*runtimeapi.Container, 0, len(m.containers)+len(m.rawContainers))
	for _, p := range m.pods {
		for _, c := range p.containers {
			if containerMatches(f, c.entry) {
				out = append(out, c.entry)
			}
		}
	}
	for _, c := range m.rawContainers {
		if containerMatches(f, c) {
			out = append(out, c)
		}
	}
	m.shuffle.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func sandboxMatches(f *runtimeapi.PodSandboxFilter, s *runtimeapi.PodSandbox) bool {
	if f == nil {
		return true
	}
	return (f.Id == "" || f.Id == s.GetId()) &&
		(f.State == nil || f.State.State == s.GetState()) &&
		selects(f.LabelSelector, s.GetLabels())
}

func containerMatches(f *runtimeapi.ContainerFilter, c *runtimeapi.Container) bool {
	if f == nil {
		return true
	}
	return (f.Id == "" || f.Id == c.GetId()) &&
		(f.State == nil || f.State.State == c.GetState()) &&
		(f.PodSandboxId == "" || f.PodSandboxId == c.GetPodSandboxId()) &&
		selects(f.LabelSelector, c.GetLabels())
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// findSandboxStatus returns nil where there is no such sandbox.
func (m *Model) findSandboxStatus(id string) *runtimeapi.PodSandboxStatus {
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

// findContainerStatus returns nil where there is no such container.
func (m *Model) findContainerStatus(id string) *runtimeapi.ContainerStatus {
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
