package fakeruntime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod names the parts of a pod that was added to a Model.
type Pod struct {
	UID, Name, Namespace string
	// SandboxID is the pod's first sandbox.
	SandboxID string
	// ContainerIDs are its containers, in the order of PodSpec.Containers.
	ContainerIDs []string
}

// PodSpec describes a pod. Every zero field is filled in.
type PodSpec struct {
	Name, Namespace string
	// Containers are the names of the pod's containers; they are running.
	Containers []string
	// IPs are the sandbox's addresses, the primary one first.
	IPs []string

	uid                 string
	labels, annotations map[string]string // without the kubelet's
}

// Model is what the fake runtime knows: sandboxes and containers, their
// statuses, its own conditions. Its methods may be called at any time and from
// any goroutine; a call that is under way answers from before or after the
// change. A method that is given an id or uid that the model does not hold
// panics, since that is a mistake in the test.
//
// Ids, uids and the order of answers come from the seed, and creation times are
// unique and rise, so two models that were told the same are the same.
type Model struct {
	mu      sync.Mutex
	ids     *rand.Rand // ids and names only, so that listing does not change them
	shuffle *rand.Rand // order of answers
	churn   *rand.Rand
	carry   float64 // of a pod, left over from the last Churn
	last    int64   // the last creation time given out

	pods       []*pod
	byUID      map[string]*pod
	sandboxes  map[string]*sandbox
	containers map[string]*container

	rawSandboxes  []*cri.PodSandbox
	rawContainers []*cri.Container
	// Appended to the encoded lists unchanged.
	rawSandboxBytes, rawContainerBytes []byte

	runtime runtimeState
	events  eventQueue
}

// pod groups what belongs to one uid.
type pod struct {
	spec       PodSpec
	seen       string
	sandboxes  []*sandbox
	containers []*container // in the order in which they were created
}

// sandbox is one sandbox. Its entry is shared with answers that are being
// marshalled: it is replaced, never changed.
type sandbox struct {
	pod   *pod
	entry *cri.PodSandbox
	ips   []string
}

// container is one container. Its entry is replaced, never changed.
type container struct {
	pod               *pod
	entry             *cri.Container
	started, finished int64
	exitCode          int32
	reason, message   string
}

func newModel(seed uint64) *Model {
	return &Model{
		ids:        rand.New(rand.NewPCG(seed, 1)),
		shuffle:    rand.New(rand.NewPCG(seed, 2)),
		churn:      rand.New(rand.NewPCG(seed, 3)),
		byUID:      make(map[string]*pod),
		sandboxes:  make(map[string]*sandbox),
		containers: make(map[string]*container),
		runtime:    newRuntimeState(),
	}
}

// tick returns a time that no other record has: the clock's, or just after the
// last one given out. The kubelet orders by creation time.
func (m *Model) tick() int64 {
	m.last = max(m.last+1, time.Now().UnixNano())
	return m.last
}

// AddPod adds a pod with one READY sandbox and its containers, all running.
func (m *Model) AddPod(spec PodSpec) Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addPod(spec)
}

// FillPods adds pods like those of an ordinary node, each with the number of
// running containers given.
func (m *Model) FillPods(pods, containers int) []Pod {
	names := make([]string, containers)
	for i := range names {
		names[i] = containerName(i)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Pod, pods)
	for i := range out {
		out[i] = m.addPod(PodSpec{Containers: names})
	}
	return out
}

func (m *Model) addPod(spec PodSpec) Pod {
	n := len(m.pods)
	spec.uid = m.newUID()
	if spec.Namespace == "" {
		spec.Namespace = []string{"default", "kube-system", "monitoring", "payments"}[n%4]
	}
	if spec.Name == "" {
		spec.Name = fmt.Sprintf("service-%03d-%s-%s", n, m.suffix(10), m.suffix(5))
	}
	if spec.IPs == nil {
		spec.IPs = []string{fmt.Sprintf("10.244.%d.%d", n>>8&0xff, n&0xff)}
	}
	p := &pod{spec: spec, seen: time.Now().UTC().Format(time.RFC3339Nano)}
	m.fillLabels(p)
	m.pods = append(m.pods, p)
	m.byUID[spec.uid] = p

	out := Pod{UID: spec.uid, Name: p.spec.Name, Namespace: p.spec.Namespace}
	out.SandboxID = m.addSandbox(p).entry.Id
	for _, name := range spec.Containers {
		c := m.addContainer(p, name)
		m.startContainer(c)
		out.ContainerIDs = append(out.ContainerIDs, c.entry.Id)
	}
	return out
}

// addSandbox adds a READY sandbox; the older ones stay as they are.
func (m *Model) addSandbox(p *pod) *sandbox {
	s := &sandbox{pod: p, ips: p.spec.IPs}
	s.entry = m.sandboxEntry(p, uint32(len(p.sandboxes)))
	p.sandboxes = append(p.sandboxes, s)
	m.sandboxes[s.entry.Id] = s
	m.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, s.entry.Id, p)
	m.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, s.entry.Id, p)
	return s
}

// AddContainer adds a container to a pod's newest sandbox and returns its id. It
// is created and not yet started. Its attempt is one more than that of the last
// container of that name.
func (m *Model) AddContainer(podUID, name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addContainer(find(m.byUID, "pod", podUID), name).entry.Id
}

func (m *Model) addContainer(p *pod, name string) *container {
	var attempt uint32
	for _, c := range p.containers {
		if c.entry.GetMetadata().GetName() == name {
			attempt = max(attempt, c.entry.Metadata.Attempt+1)
		}
	}
	c := &container{pod: p, entry: m.containerEntry(p, name, attempt)}
	p.containers = append(p.containers, c)
	m.containers[c.entry.Id] = c
	m.emit(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.entry.Id, p)
	return c
}

// StartContainer makes a created container a running one.
func (m *Model) StartContainer(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startContainer(find(m.containers, "container", id))
}

func (m *Model) startContainer(c *container) {
	c.entry = proto.CloneOf(c.entry)
	c.entry.State = cri.ContainerState_CONTAINER_RUNNING
	c.started = m.tick()
	m.emit(cri.ContainerEventType_CONTAINER_STARTED_EVENT, c.entry.Id, c.pod)
}

// ExitContainer makes a container an exited one. An empty reason is filled in as
// containerd does: Completed for code 0, else Error.
func (m *Model) ExitContainer(id string, code int32, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exitContainer(find(m.containers, "container", id), code, reason)
}

func (m *Model) exitContainer(c *container, code int32, reason string) {
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	c.entry = proto.CloneOf(c.entry)
	c.entry.State = cri.ContainerState_CONTAINER_EXITED
	c.finished, c.exitCode, c.reason = m.tick(), code, reason
	m.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, c.entry.Id, c.pod)
}

// RemoveContainer makes the runtime forget a container.
func (m *Model) RemoveContainer(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeContainer(find(m.containers, "container", id))
}

func (m *Model) removeContainer(c *container) {
	id := c.entry.Id
	delete(m.containers, id)
	c.pod.containers = slices.DeleteFunc(c.pod.containers, func(o *container) bool { return o == c })
	m.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, id, c.pod)
}

// StopSandbox makes a sandbox NOTREADY and takes its addresses; its running
// containers exit with code 137.
func (m *Model) StopSandbox(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopSandbox(find(m.sandboxes, "sandbox", id))
}

func (m *Model) stopSandbox(s *sandbox) {
	for _, c := range s.pod.containers {
		if c.entry.PodSandboxId == s.entry.Id && c.entry.State == cri.ContainerState_CONTAINER_RUNNING {
			m.exitContainer(c, 137, "")
		}
	}
	s.entry = proto.CloneOf(s.entry)
	s.entry.State = cri.PodSandboxState_SANDBOX_NOTREADY
	s.ips = nil
	m.emit(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, s.entry.Id, s.pod)
}

func (m *Model) removeSandbox(s *sandbox) {
	id := s.entry.Id
	delete(m.sandboxes, id)
	s.pod.sandboxes = slices.DeleteFunc(s.pod.sandboxes, func(o *sandbox) bool { return o == s })
	m.emit(cri.ContainerEventType_CONTAINER_DELETED_EVENT, id, s.pod)
}

// RemovePod makes the runtime forget a pod with all its sandboxes and containers.
func (m *Model) RemovePod(podUID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := find(m.byUID, "pod", podUID)
	for _, c := range slices.Clone(p.containers) {
		m.removeContainer(c)
	}
	for _, s := range slices.Clone(p.sandboxes) {
		m.removeSandbox(s)
	}
	m.pods = slices.DeleteFunc(m.pods, func(o *pod) bool { return o == p })
	delete(m.byUID, podUID)
}

// Snapshot returns every entry that a list without a filter would hold now, raw
// entries included, in no order. The entries must not be changed.
func (m *Model) Snapshot() ([]*cri.PodSandbox, []*cri.Container) {
	return m.listSandboxes(nil), m.listContainers(nil)
}

// find returns an entry, which must exist. Called with the lock held.
func find[T any](all map[string]T, kind, id string) T {
	v, ok := all[id]
	if !ok {
		panic("fakeruntime: no " + kind + " " + id)
	}
	return v
}
