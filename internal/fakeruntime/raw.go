package fakeruntime

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddRawSandbox appends entries to the answers of ListPodSandbox, nil metadata,
// empty ids and duplicates included. They must not be changed afterwards.
// PodSandboxStatus knows them by their id.
func (m *Model) AddRawSandbox(entries ...*cri.PodSandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxes = append(m.rawSandboxes, entries...)
}

// AddRawContainer appends entries to the answers of ListContainers.
func (m *Model) AddRawContainer(entries ...*cri.Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawContainers = append(m.rawContainers, entries...)
}

// AddRawBytes appends bytes to the answers of ListPodSandbox and ListContainers,
// valid or not.
func (m *Model) AddRawBytes(sandboxes, containers []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxBytes = append(slices.Clip(m.rawSandboxBytes), sandboxes...)
	m.rawContainerBytes = append(slices.Clip(m.rawContainerBytes), containers...)
}

// ClearRaw removes all raw entries and bytes.
func (m *Model) ClearRaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rawSandboxes, m.rawContainers, m.rawSandboxBytes, m.rawContainerBytes = nil, nil, nil, nil
}

func (m *Model) rawBytes() (sandboxes, containers []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rawSandboxBytes, m.rawContainerBytes
}
