package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plainClient relists in the obvious way with the generated client. It does what the
// kubelet's relist does, less its conversions, sorting and inspections.
type plainClient struct {
	runtime runtimeapi.RuntimeServiceClient
	known   map[string]*pod
	events  int
}

// pod is the states of its containers and sandboxes. They are few: a map for each pod would cost more.
type pod struct {
	entries []entry
	few     [4]entry // backs entries
}

type entry struct {
	id    string
	state state
}

// of returns the state of an id, also in a pod that is nil.
func (p *pod) of(id string) state {
	if p != nil {
		for _, e := range p.entries {
			if e.id == id {
				return e.state
			}
		}
	}
	return gone
}

type state uint8

const (
	gone state = iota
	running
	exited
	other
)

// runPlain relists once a second, however long a relist takes, until ctx is done.
func runPlain(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20))) // as the kubelet
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	p := &plainClient{runtime: runtimeapi.NewRuntimeServiceClient(conn)}
	for tick := time.NewTicker(time.Second); ; {
		if err := p.relist(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *plainClient) relist(ctx context.Context) error {
	sandboxes, err := p.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	list, err := p.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	now := make(map[string]*pod, len(p.known))
	add := func(uid, id string, s state) {
		to := now[uid]
		if to == nil {
			to = &pod{}
			to.entries = to.few[:0]
			now[uid] = to
		}
		to.entries = append(to.entries, entry{id, s})
	}
	for _, s := range sandboxes.GetItems() {
		ready := exited
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready = running
		}
		add(s.GetMetadata().GetUid(), s.GetId(), ready)
	}
	for _, c := range list.GetContainers() {
		s := other
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			s = running
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			s = exited
		}
		add(c.GetLabels()["io.kubernetes.pod.uid"], c.GetId(), s)
	}
	for uid, cur := range now {
		p.events += changes(p.known[uid], cur)
	}
	for uid, old := range p.known {
		if now[uid] == nil {
			p.events += changes(old, nil)
		}
	}
	p.known = now
	return nil
}

// changes counts the events between two states of a pod: see the table in docs/architecture.md.
func changes(old, cur *pod) (n int) {
	if cur != nil {
		for _, e := range cur.entries {
			if e.state != old.of(e.id) {
				n++ // started, died or changed
			}
		}
	}
	if old != nil {
		for _, e := range old.entries {
			if cur.of(e.id) == gone {
				n++ // removed
				if e.state != exited {
					n++ // and died before
				}
			}
		}
	}
	return n
}
