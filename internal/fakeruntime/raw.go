package fakeruntime

import (
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddRawSandbox appends entries to what ListPodSandbox answers, as they are: nil
// metadata, empty ids and duplicates included. They must not be changed
// afterwards. PodSandboxStatus knows them by their id.
func (m *Model) AddRawSandbox(entries ...*runtimeapi.PodSandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxes = append(m.rawSandboxes, entries...)
}

// AddRawContainer appends entries to what ListContainers answers, as they are.
// They must not be changed afterwards. ContainerStatus knows them by their id.
func (m *Model) AddRawContainer(entries ...*runtimeapi.Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawContainers = append(m.rawContainers, entries...)
}

// AddRawBytes appends bytes to the answers of ListPodSandbox and ListContainers:
// entries as no marshaller writes them (field 1, length-delimited), or what is no
// entry at all.
func (m *Model) AddRawBytes(sandboxes, containers []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxBytes = append(slices.Clip(m.rawSandboxBytes), sandboxes...)
	m.rawContainerBytes = append(slices.Clip(m.rawContainerBytes), containers...)
}

// ClearRaw takes all raw entries away again.
func (m *Model) ClearRaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxes, m.rawContainers = nil, nil
	m.rawSandboxBytes, m.rawContainerBytes = nil, nil
}

// EditSandbox changes one sandbox's entry as no runtime should: another uid, no
// metadata, labels of any size. edit gets a copy of its own.
func (m *Model) EditSandbox(id string, edit func(*runtimeapi.PodSandbox)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandbox(id)
	entry := proto.Clone(s.entry).(*runtimeapi.PodSandbox)
	edit(entry)
	s.entry = entry
	delete(m.sandboxes, id)
	m.sandboxes[entry.Id] = s
}

// EditContainer changes one container's entry as no runtime should. edit gets a
// copy of its own.
func (m *Model) EditContainer(id string, edit func(*runtimeapi.Container)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.container(id)
	entry := proto.Clone(c.entry).(*runtimeapi.Container)
	edit(entry)
	c.entry = entry
	delete(m.containers, id)
	m.containers[entry.Id] = c
}

// rawBytes returns what AddRawBytes has added to a list.
func (m *Model) rawBytes(sandboxes bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sandboxes {
		return m.rawSandboxBytes
	}
	return m.rawContainerBytes
}
