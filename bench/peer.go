package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// peer relists as one would write it down with the generated client: decode
// both lists, group them by pod, compare each with the last. It does what the
// kubelet's relist does and leaves out what that does beside it (converting into
// types of its own, sorting, inspecting).
type peer struct {
	conn     *grpc.ClientConn
	client   runtimeapi.RuntimeServiceClient
	known    map[string]*peerPod
	received int
	seen     int
}

// peerPod holds the states of a pod's containers and sandboxes. They are few: a
// map for each pod would cost more than looking through them.
type peerPod struct {
	uid, name, namespace string
	states               []peerEntry
	few                  [4]peerEntry // where states begins
}

type peerEntry struct {
	id    string
	state peerState
}

// set notes a state; of two entries of one id the last counts.
func (p *peerPod) set(id string, state peerState) {
	for i := range p.states {
		if p.states[i].id == id {
			p.states[i].state = state
			return
		}
	}
	p.states = append(p.states, peerEntry{id, state})
}

// state is what an id is in a pod that may be nil.
func (p *peerPod) state(id string) peerState {
	if p != nil {
		for _, e := range p.states {
			if e.id == id {
				return e.state
			}
		}
	}
	return peerGone
}

type peerState uint8

const (
	peerGone peerState = iota
	peerRunning
	peerExited
	peerOther
)

func newPeer(socket string) (*peer, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return &peer{conn: conn, client: runtimeapi.NewRuntimeServiceClient(conn)}, nil
}

// lists makes both calls.
func (p *peer) lists(ctx context.Context) (*runtimeapi.ListPodSandboxResponse, *runtimeapi.ListContainersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	sandboxes, err := p.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, err
	}
	containers, err := p.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return sandboxes, containers, err
}

// measure notes the size of the answers, once: what the runtime sends does not
// change much.
func (p *peer) measure(sandboxes *runtimeapi.ListPodSandboxResponse, containers *runtimeapi.ListContainersResponse) {
	if p.received == 0 {
		p.received = proto.Size(sandboxes) + proto.Size(containers)
	}
}

func (p *peer) relist(ctx context.Context) error {
	sandboxes, containers, err := p.lists(ctx)
	if err != nil {
		return err
	}

	now := make(map[string]*peerPod, len(p.known))
	room := make([]peerPod, 0, len(sandboxes.GetItems())) // as good as all pods have one
	add := func(uid, name, namespace string) *peerPod {
		if len(room) == cap(room) {
			room = make([]peerPod, 0, 16)
		}
		room = append(room, peerPod{uid: uid, name: name, namespace: namespace})
		made := &room[len(room)-1]
		made.states = made.few[:0]
		now[uid] = made
		return made
	}
	for _, s := range sandboxes.GetItems() {
		if s.GetMetadata() == nil {
			continue
		}
		state := peerExited
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			state = peerRunning
		}
		pod := now[s.Metadata.GetUid()]
		if pod == nil {
			pod = add(s.Metadata.GetUid(), s.Metadata.GetName(), s.Metadata.GetNamespace())
		}
		pod.set(s.GetId(), state)
	}
	for _, c := range containers.GetContainers() {
		if c.GetMetadata() == nil {
			continue
		}
		state := peerOther
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			state = peerRunning
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			state = peerExited
		}
		l := c.GetLabels()
		pod := now[l["io.kubernetes.pod.uid"]]
		if pod == nil { // its sandbox is not listed
			pod = add(l["io.kubernetes.pod.uid"], l["io.kubernetes.pod.name"], l["io.kubernetes.pod.namespace"])
		}
		pod.set(c.GetId(), state)
	}

	if p.known != nil {
		for uid, cur := range now {
			p.seen += changes(p.known[uid], cur)
		}
		for uid, old := range p.known {
			if now[uid] == nil {
				p.seen += changes(old, nil)
			}
		}
	}
	p.known = now
	p.measure(sandboxes, containers)
	return nil
}

// changes counts the events that lie between two states of a pod: see the table
// in docs/architecture.md.
func changes(old, cur *peerPod) int {
	n := 0
	if cur != nil {
		for _, e := range cur.states {
			if e.state != old.state(e.id) {
				n++ // started, died or changed
			}
		}
	}
	if old != nil {
		for _, e := range old.states {
			if cur.state(e.id) != peerGone {
				continue
			}
			n++ // removed
			if e.state != peerExited {
				n++ // and died before
			}
		}
	}
	return n
}

func (p *peer) bytes() int  { return p.received }
func (p *peer) pods() int   { return len(p.known) }
func (p *peer) events() int { return p.seen }
func (p *peer) close()      { _ = p.conn.Close() }
