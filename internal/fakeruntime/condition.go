package fakeruntime

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What containerd answers to Status while it has no CNI configuration.
const (
	ReasonNetworkNotReady  = "NetworkPluginNotReady"
	MessageNetworkNotReady = "Network plugin returns error: cni plugin not initialized"
	CNILoadStatusNoConfig  = "cni config load failed: no network config found in /etc/cni/net.d: " +
		"cni plugin not initialized: failed to load cni config"
)

// runtimeState is the answer to Version and Status.
type runtimeState struct {
	name, version string
	conditions    []*cri.RuntimeCondition // replaced, never changed
}

func newRuntimeState() runtimeState {
	return runtimeState{
		name: "simulated", version: "1.0.0",
		conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true},
			{Type: cri.NetworkReady, Status: true},
		},
	}
}

// SetVersion changes the answer to Version: another runtime behind the same socket.
func (m *Model) SetVersion(name, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.name, m.runtime.version = name, version
}

// SetCondition sets a condition of Status (cri.RuntimeReady,
// cri.NetworkReady), adding it where there is none.
func (m *Model) SetCondition(conditionType string, status bool, reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.set(&cri.RuntimeCondition{Type: conditionType, Status: status, Reason: reason, Message: message})
}

// RemoveCondition takes a condition out of Status, which the kubelet prints as
// <nil>.
func (m *Model) RemoveCondition(conditionType string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.conditions = without(m.runtime.conditions, conditionType)
}

func (s *runtimeState) set(c *cri.RuntimeCondition) {
	s.conditions = append(without(s.conditions, c.Type), c)
}

// without returns a new list without one condition.
func without(conditions []*cri.RuntimeCondition, conditionType string) []*cri.RuntimeCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c *cri.RuntimeCondition) bool {
		return c.Type == conditionType
	})
}

// notReady is a false condition as containerd reports it.
func notReady(conditionType string) *cri.RuntimeCondition {
	if conditionType == cri.NetworkReady {
		return &cri.RuntimeCondition{Type: conditionType, Reason: ReasonNetworkNotReady, Message: MessageNetworkNotReady}
	}
	return &cri.RuntimeCondition{
		Type: conditionType, Reason: "SimulatedRuntimeNotReady", Message: "the simulated runtime is not ready",
	}
}

func (m *Model) versionResponse() *cri.VersionResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &cri.VersionResponse{
		Version: "0.1.0", RuntimeName: m.runtime.name, RuntimeVersion: m.runtime.version, RuntimeApiVersion: "v1",
	}
}

func (m *Model) statusResponse(verbose bool) *cri.StatusResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	resp := &cri.StatusResponse{
		Status:          &cri.RuntimeStatus{Conditions: slices.Clone(m.runtime.conditions)},
		RuntimeHandlers: []*cri.RuntimeHandler{{Name: "runc"}, {}},
		Features:        &cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if verbose {
		resp.Info = map[string]string{"golang": `"go1.26"`, "lastCNILoadStatus": "OK"}
	}
	return resp
}
