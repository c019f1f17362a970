package cri

import (
	"context"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// kubeAPIVersion is what the kubelet sends (kuberuntime, kubeRuntimeAPIVersion).
const kubeAPIVersion = "0.1.0"

// Version asks for the runtime's name and version.
func (c *Client) Version(ctx context.Context) (facts.Runtime, error) {
	var m runtimeapi.VersionResponse
	err := c.ask(ctx, OpVersion, &runtimeapi.VersionRequest{Version: kubeAPIVersion}, &m)
	return facts.Runtime{
		Name: plain.CutTo(m.GetRuntimeName(), maxName), Version: plain.CutTo(m.GetRuntimeVersion(), maxName),
		CRIVersion: plain.CutTo(m.GetRuntimeApiVersion(), maxName),
	}, err
}

// Status asks for the runtime's conditions. One that the answer does not hold is nil.
func (c *Client) Status(ctx context.Context) (s facts.Status, err error) {
	var m runtimeapi.StatusResponse
	if err := c.ask(ctx, OpStatus, &runtimeapi.StatusRequest{}, &m); err != nil {
		return s, err
	}
	s.Answered = true
	for _, cond := range m.GetStatus().GetConditions() {
		p := &facts.Condition{
			Status: cond.GetStatus(), Reason: plain.CutTo(cond.GetReason(), maxName),
			Message: plain.CutTo(cond.GetMessage(), maxMessage),
		}
		switch {
		case cond.GetType() == runtimeapi.RuntimeReady && s.RuntimeReady == nil:
			s.RuntimeReady = p
		case cond.GetType() == runtimeapi.NetworkReady && s.NetworkReady == nil:
			s.NetworkReady = p
		}
	}
	return s, nil
}

// ListPodSandbox lists all sandboxes. The entries are immutable, and the same as
// last time where nothing changed.
func (c *Client) ListPodSandbox(ctx context.Context) ([]*Entry, error) {
	s := c.session.Load()
	return s.list(ctx, OpListPodSandbox, s.sandboxes, &runtimeapi.ListPodSandboxRequest{}, s.trackers[OpListPodSandbox])
}

// ListContainers lists all containers, exited ones too, as ListPodSandbox does.
func (c *Client) ListContainers(ctx context.Context) ([]*Entry, error) {
	s := c.session.Load()
	return s.list(ctx, OpListContainers, s.containers, &runtimeapi.ListContainersRequest{}, s.trackers[OpListContainers])
}

func (s *session) list(ctx context.Context, op string, r *listReader, req proto.Message, t *tracker) ([]*Entry, error) {
	var out []*Entry
	a := &answer{decode: func(b mem.BufferSlice) (err error) { out, err = r.read(b); return err }}
	err := s.call(ctx, op, req, a, t)
	return out, err
}

// LastLists returns the last lists of sandboxes and of containers that were answered. They
// may be of different times.
func (c *Client) LastLists() (sandboxes, containers []*Entry) {
	s := c.session.Load()
	return s.sandboxes.lastList(), s.containers.lastList()
}

// TakeDropped returns the sandboxes and containers, since the last call, that were running in one list and not in
// the next one.
func (c *Client) TakeDropped() []*Entry {
	s := c.session.Load()
	return slices.Concat(s.sandboxes.takeDropped(), s.containers.takeDropped())
}

// PodLists lists the sandboxes and containers of one pod. The two calls count as
// lists, but leave the history of the lists as it is.
func (c *Client) PodLists(ctx context.Context, uid string) (sandboxes, containers []*Entry, err error) {
	s := c.session.Load()
	selector := map[string]string{labelPodUID: uid}
	sandboxes, err = s.list(ctx, OpListPodSandbox, sandboxReader(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
	}, nil)
	if err == nil {
		containers, err = s.list(ctx, OpListContainers, containerReader(s.sandboxes), &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
		}, nil)
	}
	return sandboxes, containers, err
}

// StatusOf asks for one sandbox or container, as the kubelet's inspection does.
func (c *Client) StatusOf(ctx context.Context, e *Entry) error {
	s := c.session.Load()
	return s.status(ctx, e, s.trackers[e.Operation()])
}

// Answers asks like StatusOf, to find out whether that call is answered while a list is
// not. It leaves no trace in the operation's history.
func (c *Client) Answers(ctx context.Context, e *Entry) error {
	return c.session.Load().status(ctx, e, nil)
}

// HasBegun asks like Answers, and reports whether a sandbox is ready, or a container is known: a runtime may know a sandbox
// while it still makes it. It is false without an answer.
func (c *Client) HasBegun(ctx context.Context, e *Entry) bool {
	var sandbox runtimeapi.PodSandboxStatusResponse
	err := c.session.Load().statusOf(ctx, e, nil, &sandbox)
	return err == nil && (!e.Sandbox || sandbox.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY)
}

func (s *session) status(ctx context.Context, e *Entry, t *tracker) error {
	return s.statusOf(ctx, e, t, &runtimeapi.PodSandboxStatusResponse{})
}

// statusOf asks for a container, or for a sandbox, whose answer it fills in.
func (s *session) statusOf(ctx context.Context, e *Entry, t *tracker, sandbox *runtimeapi.PodSandboxStatusResponse) error {
	var container runtimeapi.ContainerStatusResponse
	a := checked(&container)
	var req proto.Message = &runtimeapi.ContainerStatusRequest{ContainerId: e.ID}
	if e.Sandbox {
		a = checked(sandbox)
		req = &runtimeapi.PodSandboxStatusRequest{PodSandboxId: e.ID}
	}
	err := s.call(ctx, e.Operation(), req, a, t)
	s.arrivals.single.Add(int64(a.bytes))
	if err == nil && !e.Sandbox {
		s.starts.note(container.GetStatus())
	}
	return err
}
