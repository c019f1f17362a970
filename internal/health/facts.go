package health

import (
	"cmp"
	"time"
)

// Facts is the input of a verdict. It holds plain values only, so that a verdict can be
// computed from a file as well as on a running node. A zero time means "never". The
// caller must not change facts that it has handed over.
type Facts struct {
	Config Config `json:"config"`
	// Started is when plegd started.
	Started time.Time `json:"started,omitzero"`
	// KubeletStarted is when the node's kubelet started, or the last one where its
	// process is gone; zero where none has been seen.
	KubeletStarted time.Time `json:"kubelet_started,omitzero"`
	// UnobservedGap is how long plegd was not running between the moment that
	// the restored times were written and Started; 0 when nothing was restored.
	UnobservedGap time.Duration `json:"unobserved_gap_seconds,omitzero"`

	Endpoint Endpoint     `json:"endpoint"`
	Relist   Relist       `json:"relist"`
	Modelled Modelled     `json:"modelled,omitzero"`
	Status   Status       `json:"status"`
	Version  VersionCheck `json:"version,omitzero"`
	// NodeStatus is what the modelled kubelet writes to the API, nil where nobody
	// has modelled it: then the condition follows the rules at once.
	NodeStatus *NodeStatus     `json:"node_status,omitzero"`
	Calls      map[string]Call `json:"calls,omitempty"`
	// Arriving is when the held connection last received many bytes at once, as
	// of a list: 64 KiB within half a second. Zero for never.
	Arriving time.Time `json:"arriving,omitzero"`
	Dial     Dial      `json:"dial,omitzero"`
	Probe    Probe     `json:"probe,omitzero"`
	Runtime  Runtime   `json:"runtime,omitzero"`
	Evidence Evidence  `json:"evidence"`
	// Pods counts what runs on the node; nil before the first successful relist.
	Pods *Pods `json:"pods,omitzero"`
	// Woke is the end of the last pause of plegd: a gap in its ticks, as of a stopped
	// process or a suspended machine. Zero for none.
	Woke time.Time `json:"woke,omitzero"`
	// Events is the runtime's event stream, nil where plegd does not listen to
	// it.
	Events *Events `json:"events,omitzero"`
}

// Pods counts the pods and containers of the last successful relist.
type Pods struct {
	// Running is the number of pods with a running sandbox.
	Running int `json:"running"`
	// Containers counts the containers by state, exited ones too.
	Containers map[string]int `json:"containers,omitempty"`
}

// total returns the number of containers.
func (p *Pods) total() (n int) {
	if p == nil {
		return 0
	}
	for _, of := range p.Containers {
		n += of
	}
	return n
}

// Config is the configuration, as far as a verdict depends on it.
type Config struct {
	// RelistPeriod and RelistThreshold are the effective ones: the evented ones while the
	// kubelet relies on events.
	RelistPeriod    time.Duration `json:"relist_period_seconds"`
	RelistThreshold time.Duration `json:"relist_threshold_seconds"`
	// GenericPeriod is the period without events, 0 if it is the effective one.
	GenericPeriod time.Duration `json:"generic_period_seconds,omitzero"`
	RPCTimeout    time.Duration `json:"rpc_timeout_seconds"`
	// ProbeTimeout is the limit of a stage of a fresh dial; 0 in facts of an older plegd.
	ProbeTimeout time.Duration `json:"probe_timeout_seconds,omitzero"`
	// NodeStatusPeriod is the kubelet's nodeStatusUpdateFrequency.
	NodeStatusPeriod time.Duration `json:"node_status_period_seconds,omitzero"`
	// From says where RPCTimeout and NodeStatusPeriod come from, by the name of
	// the kubelet's setting.
	From map[string]string `json:"from,omitzero"`
}

// long is how much longer than usual a relist must be under way to be in
// trouble: two periods. A relist takes no longer because relists are far apart.
func (c *Config) long() time.Duration {
	if c.GenericPeriod > 0 {
		return 2 * c.GenericPeriod
	}
	return 2 * c.RelistPeriod
}

// Endpoint is the runtime's socket.
type Endpoint struct {
	// Path is the socket's path; empty while none has been found.
	Path string `json:"path"`
	// Source says who named it: a flag, the kubelet's arguments, a file, or
	// the list of usual places.
	Source string `json:"source"`
	// Searched lists where plegd looked, while Path is empty.
	Searched []string `json:"searched,omitzero"`
	// Searching is true while the first search for the socket has not ended: that
	// Path is empty then means nothing.
	Searching bool `json:"searching,omitzero"`
}

// Phase is a step of a relist.
type Phase string

// The phases of a relist, as pleg_relist_inflight_seconds labels them.
const (
	PhaseListPodSandbox Phase = "list_podsandbox"
	PhaseListContainers Phase = "list_containers"
	PhaseInspect        Phase = "inspect"
)

// Phases lists the phases of a relist in their order.
func Phases() []Phase { return []Phase{PhaseListPodSandbox, PhaseListContainers, PhaseInspect} }

// Relist is what the relist loop has done and is doing.
type Relist struct {
	// Attempts counts relists started since plegd started.
	Attempts uint64 `json:"attempts"`
	// LastSeen is the start of the last successful relist, restored from
	// before a restart where there was none since.
	LastSeen time.Time `json:"last_seen,omitzero"`
	// LastSeenRestored is true while LastSeen comes from before a restart.
	LastSeenRestored bool `json:"last_seen_restored,omitzero"`
	// InFlight is the relist under way, nil between two.
	InFlight *InFlight `json:"in_flight,omitzero"`
	// Last is the last relist that ended, nil before the first.
	Last *RelistResult `json:"last,omitzero"`
	// Failures counts the failed relists since the last successful one.
	Failures int `json:"failures"`
	// AnsweredSince is the end of the first successful relist since one failed, or
	// of the last one that took HangAfter or more; zero while one has failed, and
	// where none ever has or did.
	AnsweredSince time.Time `json:"answered_since,omitzero"`
	// Lists are the times of both lists together in the recent successful
	// relists, oldest first.
	Lists []time.Duration `json:"lists_seconds,omitzero"`
	// Reinspect is the number of pods that wait for reinspection.
	Reinspect int `json:"reinspect"`
	// Inspecting are the inspections that have been under way for longest, at
	// most MaxPods of them.
	Inspecting []PodInspection `json:"inspecting,omitempty"`
	// Failing are the pods whose last inspection failed, at most MaxPods.
	Failing []PodInspection `json:"failing,omitempty"`
	// Slowest are the slowest inspections of the recent relists, at most MaxPods.
	Slowest []PodInspection `json:"slowest,omitempty"`
}

// recent returns the times of the last n lists, fewer where there are fewer.
func (r *Relist) recent(n int) []time.Duration { return r.Lists[max(0, len(r.Lists)-n):] }

// MaxPods is the most pods that facts name one by one.
const MaxPods = 5

// InFlight is a relist under way.
type InFlight struct {
	Start time.Time `json:"start,omitzero"`
	Phase Phase     `json:"phase"`
	// PhaseStart is when the present phase began.
	PhaseStart time.Time `json:"phase_start,omitzero"`
	// Pods is how many pods are to be inspected, Inspected how many have been;
	// both 0 before the inspections.
	Pods      int `json:"pods,omitzero"`
	Inspected int `json:"inspected,omitzero"`
}

// RelistResult is a relist that ended.
type RelistResult struct {
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Err is what failed, nil after success. A failed inspection does not fail
	// a relist.
	Err            *CallError    `json:"error,omitzero"`
	ListPodSandbox time.Duration `json:"list_podsandbox_seconds"`
	ListContainers time.Duration `json:"list_containers_seconds"`
	// Serial is what the relist would have taken one call after another.
	Serial time.Duration `json:"serial_seconds"`
	// Changed is the number of pods with events, Inspected the number
	// inspected (reinspections included), Failed how many of these failed.
	Changed   int `json:"changed"`
	Inspected int `json:"inspected"`
	Failed    int `json:"failed"`
	// Slowest are its slowest inspections; only incidents keep them here.
	Slowest []PodInspection `json:"slowest,omitempty"`
}

// PodInspection is the inspection of one pod.
type PodInspection struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Operation is the call under way, or the last one.
	Operation string    `json:"operation"`
	Start     time.Time `json:"start,omitzero"`
	// CallStart is when the call under way was made, zero where there is none.
	CallStart time.Time `json:"call_start,omitzero"`
	// Duration is 0 while the inspection is under way.
	Duration time.Duration `json:"duration_seconds,omitzero"`
	Err      *CallError    `json:"error,omitzero"`
	// Failures counts this pod's failed inspections in a row.
	Failures int `json:"failures,omitzero"`
}

// called returns when the call under way was made, or the inspection where there is none.
func (p *PodInspection) called() time.Time { return cmp.Or(p.CallStart, p.Start) }

// Modelled is the relist that the kubelet makes: lists, and then one inspection
// after another, each with the RPC timeout. plegd makes its own in the same way.
type Modelled struct {
	// LastSeen is the start of its last successful relist.
	LastSeen time.Time `json:"last_seen,omitzero"`
	// BusySince is the start of its relist under way, zero between two.
	BusySince time.Time `json:"busy_since,omitzero"`
	// InspectingSince is when that relist had its lists and began to inspect,
	// zero before.
	InspectingSince time.Time `json:"inspecting_since,omitzero"`
	// Inspecting is how many pods it has yet to finish in that relist.
	Inspecting int `json:"inspecting,omitzero"`
	// EndsBy is the latest end of that relist, zero while its lists are under way.
	EndsBy time.Time `json:"ends_by,omitzero"`
	// LastSeenBefore136 is the last seen of a kubelet before 1.36, which lists again in
	// each inspection: zero where the kubelet's version is known or makes no difference.
	LastSeenBefore136 time.Time `json:"last_seen_before_1_36,omitzero"`
}

// Status is what the Status calls said.
type Status struct {
	// Answered is true once any Status call has been answered.
	Answered bool `json:"answered"`
	// LastGood is when the last good answer came: RuntimeReady=true.
	// Restored is true while all of this comes from before a restart of plegd.
	LastGood time.Time `json:"last_good,omitzero"`
	Restored bool      `json:"restored,omitzero"`
	// RuntimeReady and NetworkReady are the conditions of the last answer, nil
	// when it held none.
	RuntimeReady *Condition `json:"runtime_ready,omitzero"`
	NetworkReady *Condition `json:"network_ready,omitzero"`
	// InFlightSince is the start of the call under way, zero between two.
	InFlightSince time.Time `json:"in_flight_since,omitzero"`
	// LastErr is why the last call failed, nil when it was answered.
	LastErr *CallError `json:"last_error,omitzero"`
}

// Condition is one condition of a Status answer.
type Condition struct {
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitzero"`
	Message string `json:"message,omitzero"`
}

// Runtime is the runtime's report about itself; empty before the first Version answer.
type Runtime struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	CRIVersion string `json:"cri_version"`
}
