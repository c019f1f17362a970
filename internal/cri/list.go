package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox lists all sandboxes. The values are immutable, and the same as
// last time where nothing changed.
func (c *Client) ListPodSandbox(ctx context.Context) (out []*Sandbox, err error) {
	s := c.session.Load()
	a := &answer{decode: func(b mem.BufferSlice) error { out, err = s.sandboxes.read(b); return err }}
	err = s.call(ctx, OpListPodSandbox, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		&runtimeapi.ListPodSandboxRequest{}, a)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ListContainers lists all containers, exited ones too. The values are
// immutable, and the same as last time where nothing changed.
func (c *Client) ListContainers(ctx context.Context) (out []*Container, err error) {
	s := c.session.Load()
	a := &answer{decode: func(b mem.BufferSlice) error { out, err = s.containers.read(b); return err }}
	err = s.call(ctx, OpListContainers, runtimeapi.RuntimeService_ListContainers_FullMethodName,
		&runtimeapi.ListContainersRequest{}, a)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LastLists returns the last lists of sandboxes and of containers that were answered. They
// may be of different times.
func (c *Client) LastLists() (sandboxes []*Sandbox, containers []*Container) {
	s := c.session.Load()
	if l := s.sandboxes.last.Load(); l != nil {
		sandboxes = *l
	}
	if l := s.containers.last.Load(); l != nil {
		containers = *l
	}
	return sandboxes, containers
}

// PodLists lists the sandboxes and containers of one pod. The two calls count as
// lists, but leave the history of the lists as it is.
func (c *Client) PodLists(ctx context.Context, uid string) ([]*Sandbox, []*Container, error) {
	selector := map[string]string{labelPodUID: uid}
	var s runtimeapi.ListPodSandboxResponse
	if err := c.session.Load().callBeside(ctx, OpListPodSandbox, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}},
		into(&s)); err != nil {
		return nil, nil, fmt.Errorf("list the sandboxes of a pod: %w", err)
	}
	var l runtimeapi.ListContainersResponse
	if err := c.session.Load().callBeside(ctx, OpListContainers, runtimeapi.RuntimeService_ListContainers_FullMethodName,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}},
		into(&l)); err != nil {
		return nil, nil, fmt.Errorf("list the containers of a pod: %w", err)
	}
	sandboxes := make([]*Sandbox, 0, len(s.GetItems()))
	for _, p := range s.GetItems() {
		sandboxes = append(sandboxes, sandboxOf(p))
	}
	containers := make([]*Container, 0, len(l.GetContainers()))
	for _, p := range l.GetContainers() {
		containers = append(containers, containerOf(p))
	}
	return sandboxes, containers, nil
}
