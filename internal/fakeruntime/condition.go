package fakeruntime

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What containerd says while it has no CNI configuration.
const (
	// ReasonNetworkNotReady is containerd's reason for NetworkReady=false.
	ReasonNetworkNotReady = "NetworkPluginNotReady"
	// MessageNetworkNotReady is containerd's message for NetworkReady=false.
	MessageNetworkNotReady = "Network plugin returns error: cni plugin not initialized"
	// CNILoadStatusNoConfig is what containerd's lastCNILoadStatus says then.
	CNILoadStatusNoConfig = "cni config load failed: no network config found in /etc/cni/net.d: " +
		"cni plugin not initialized: failed to load cni config"
)

// runtimeState is what Version and Status say.
type runtimeState struct {
	name, version string
	conditions    []*runtimeapi.RuntimeCondition // replaced, never changed
	cniLoadStatus string
}

func newRuntimeState() runtimeState {
	return runtimeState{
		conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		},
		cniLoadStatus: "OK",
	}
}

// SetVersion changes what Version says: another runtime behind the same socket.
func (m *Model) SetVersion(name, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.name, m.runtime.version = name, version
}

// SetCondition sets a condition of Status (runtimeapi.RuntimeReady,
// runtimeapi.NetworkReady), adding it where there is none.
func (m *Model) SetCondition(conditionType string, status bool, reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.set(&runtimeapi.RuntimeCondition{Type: conditionType, Status: status, Reason: reason, Message: message})
}

// RemoveCondition takes a condition out of Status, which the kubelet prints as
// <nil>.
func (m *Model) RemoveCondition(conditionType string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime.conditions = without(m.runtime.conditions, conditionType)
}

// SetNetworkReady sets NetworkReady and lastCNILoadStatus as containerd shows
// them with and without a CNI configuration.
func (m *Model) SetNetworkReady(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ready {
		m.runtime.set(&runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true})
		m.runtime.cniLoadStatus = "OK"
		return
	}
	m.runtime.set(notReady(runtimeapi.NetworkReady))
	m.runtime.cniLoadStatus = CNILoadStatusNoConfig
}

func (s *runtimeState) set(c *runtimeapi.RuntimeCondition) {
	s.conditions = append(without(s.conditions, c.Type), c)
}

// without returns a new list without one condition.
func without(conditions []*runtimeapi.RuntimeCondition, conditionType string) []*runtimeapi.RuntimeCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c *runtimeapi.RuntimeCondition) bool {
		return c.Type == conditionType
	})
}

// notReady is a condition that is false, in a runtime's words.
func notReady(conditionType string) *runtimeapi.RuntimeCondition {
	if conditionType == runtimeapi.NetworkReady {
		return &runtimeapi.RuntimeCondition{
			Type: conditionType, Reason: ReasonNetworkNotReady, Message: MessageNetworkNotReady,
		}
	}
	return &runtimeapi.RuntimeCondition{
		Type: conditionType, Reason: "SimulatedRuntimeNotReady", Message: "the simulated runtime is not ready",
	}
}

func (m *Model) versionResponse() *runtimeapi.VersionResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: m.runtime.name, RuntimeVersion: m.runtime.version, RuntimeApiVersion: "v1",
	}
}

func (m *Model) statusResponse(verbose bool) *runtimeapi.StatusResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	resp := &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: slices.Clone(m.runtime.conditions)},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc"}, {}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if verbose {
		resp.Info = map[string]string{
			"config":            `{"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d"},"containerdEndpoint":"","rootDir":""}`,
			"golang":            `"go1.26"`,
			"lastCNILoadStatus": m.runtime.cniLoadStatus,
		}
	}
	return resp
}
