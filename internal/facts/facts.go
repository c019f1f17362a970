package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Facts is the input of a verdict: plain values that never change. A zero time means "never".
type Facts struct {
	Config  Config    `json:"config"`
	Started time.Time `json:"started,omitzero"` // when plegd started
	// KubeletStarted is when the node's kubelet started, or the last one that was seen.
	KubeletStarted time.Time `json:"kubelet_started,omitzero"`
	// UnobservedGap is how long before Started the restored times were written, 0 for none.
	UnobservedGap time.Duration `json:"unobserved_gap_seconds,omitzero"`

	Endpoint Endpoint     `json:"endpoint"`
	Relist   Relist       `json:"relist"`
	Modelled Modelled     `json:"modelled,omitzero"`
	Status   Status       `json:"status"`
	Version  VersionCheck `json:"version,omitzero"`
	// CRIPlugin is nil unless containerd answers and does not serve runtime.v1.
	CRIPlugin *CRIPlugin `json:"cri_plugin,omitzero"`
	// NodeStatus is what the modelled kubelet writes to the API; nil: it follows the rules at once.
	NodeStatus *NodeStatus     `json:"node_status,omitzero"`
	Calls      map[string]Call `json:"calls,omitempty"`
	// Arriving is when the held connection last received 64 KiB within half a second.
	Arriving time.Time `json:"arriving,omitzero"`
	Dial     Dial      `json:"dial,omitzero"`
	Probe    Probe     `json:"probe,omitzero"`
	Runtime  Runtime   `json:"runtime,omitzero"`
	Evidence Evidence  `json:"evidence"`
	Pods     *Pods     `json:"pods,omitzero"` // nil before the first successful relist
	// Woke is the end of the last pause of plegd: a gap in its ticks.
	Woke time.Time `json:"woke,omitzero"`
	// Paused is how long that pause was.
	Paused time.Duration `json:"paused_seconds,omitzero"`
	Events *Events       `json:"events,omitzero"` // nil where plegd does not listen to them
}

// CRIPlugin is the state of containerd's CRI plugin, asked for when the server on the socket
// does not serve runtime.v1.
type CRIPlugin struct {
	At time.Time `json:"at,omitzero"`
	// Error is why the plugin was not loaded, as containerd reports it; "" for none.
	Error string `json:"error,omitzero"`
	// Absent is true where containerd has no such plugin: its configuration disables it.
	Absent bool `json:"absent,omitzero"`
}

// Pods counts the pods and containers of the last successful relist.
type Pods struct {
	Running    int            `json:"running"`              // pods with a running sandbox
	Containers map[string]int `json:"containers,omitempty"` // by state, exited ones too
}

// Total adds up counts, as of Containers.
func Total(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// Config is the configuration, as far as a verdict depends on it.
type Config struct {
	// The effective ones: the evented ones while the kubelet relies on events.
	RelistPeriod    time.Duration `json:"relist_period_seconds"`
	RelistThreshold time.Duration `json:"relist_threshold_seconds"`
	GenericPeriod   time.Duration `json:"generic_period_seconds,omitzero"` // without events, 0 if effective
	// KubeletRelistPeriod is the kubelet's, where it relies on events and plegd does not; 0 where it is plegd's.
	KubeletRelistPeriod time.Duration `json:"kubelet_relist_period_seconds,omitzero"`
	// EarliestThreshold is the threshold of a kubelet that may have stopped to rely on events; 0 where that is known.
	EarliestThreshold time.Duration `json:"earliest_threshold_seconds,omitzero"`
	RPCTimeout        time.Duration `json:"rpc_timeout_seconds"`
	ProbeTimeout      time.Duration `json:"probe_timeout_seconds,omitzero"` // of a stage of a fresh dial
	// NodeStatusPeriod is the kubelet's nodeStatusUpdateFrequency.
	NodeStatusPeriod time.Duration `json:"node_status_period_seconds,omitzero"`
	// From says where RPCTimeout and NodeStatusPeriod come from, by the kubelet's setting.
	From map[string]string `json:"from,omitzero"`
}

// RelistLateAfter is how long a relist must be under way to be in trouble: two periods without events.
func (c *Config) RelistLateAfter() time.Duration { return 2 * cmp.Or(c.GenericPeriod, c.RelistPeriod) }

// Endpoint is the runtime's socket.
type Endpoint struct {
	Path      string   `json:"path"`               // empty while none has been found
	Source    string   `json:"source"`             // a flag, the kubelet's arguments, a file, a usual place
	Searched  []string `json:"searched,omitzero"`  // where plegd looked, while Path is empty
	Searching bool     `json:"searching,omitzero"` // true while the first search for the socket has not ended
}

// Phase is a step of a relist.
type Phase string

// The phases of a relist, as pleg_relist_inflight_seconds labels them.
const (
	PhaseListPodSandbox Phase = "list_podsandbox"
	PhaseListContainers Phase = "list_containers"
	PhaseInspect        Phase = "inspect"
)

// Phases lists them in their order.
func Phases() []Phase { return []Phase{PhaseListPodSandbox, PhaseListContainers, PhaseInspect} }

// Relist is what the relist loop has done and is doing.
type Relist struct {
	Attempts uint64 `json:"attempts"` // started since plegd started
	// LastSeen is the start of the last successful relist, one before a restart of plegd too.
	LastSeen         time.Time     `json:"last_seen,omitzero"`
	LastSeenRestored bool          `json:"last_seen_restored,omitzero"`
	InFlight         *InFlight     `json:"in_flight,omitzero"` // nil between two relists
	Last             *RelistResult `json:"last,omitzero"`      // the last that ended, nil before the first
	Failures         int           `json:"failures"`           // failed relists since the last successful one
	// AnsweredSince is the end of the first successful relist since one failed, or of the last one
	// that took HangAfter or more; zero while one has failed, and where none has.
	AnsweredSince time.Time `json:"answered_since,omitzero"`
	// Lists are the times of both lists together in the recent successful relists, oldest first.
	Lists     []time.Duration `json:"lists_seconds,omitzero"`
	Reinspect int             `json:"reinspect"` // pods that wait for reinspection
	// Inspecting are the inspections that have been under way for longest, Failing the pods
	// whose last inspection failed, Slowest the slowest of the recent relists; MaxPods each.
	Inspecting []PodInspection `json:"inspecting,omitempty"`
	Failing    []PodInspection `json:"failing,omitempty"`
	Slowest    []PodInspection `json:"slowest,omitempty"`
}

// RecentLists returns the times of the last n lists, fewer where there are fewer.
func (r *Relist) RecentLists(n int) []time.Duration { return r.Lists[max(0, len(r.Lists)-n):] }

// HadListOf reports whether one of the last n lists took that long.
func (r *Relist) HadListOf(duration time.Duration, n int) bool {
	return slices.ContainsFunc(r.RecentLists(n), func(d time.Duration) bool { return d >= duration })
}

// MaxPods is the most pods that facts name one by one.
const MaxPods = 5

// InFlight is a relist under way.
type InFlight struct {
	Start      time.Time `json:"start,omitzero"`
	Phase      Phase     `json:"phase"`
	PhaseStart time.Time `json:"phase_start,omitzero"`
	Pods       int       `json:"pods,omitzero"`      // to be inspected, 0 before the inspections
	Inspected  int       `json:"inspected,omitzero"` // how many of these have been
	// Throttled is for how long plegd's own CPU quota has held it since the phase began: that is no time of the runtime's.
	Throttled time.Duration `json:"throttled_seconds,omitzero"`
}

// Waited returns how long the phase takes at a moment.
func (l *InFlight) Waited(t time.Time) time.Duration { return t.Sub(l.PhaseStart) - l.Throttled }

// RelistResult is a relist that ended.
type RelistResult struct {
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Err is nil after success. A failed inspection does not fail a relist.
	Err            *CallError    `json:"error,omitzero"`
	ListPodSandbox time.Duration `json:"list_podsandbox_seconds"`
	ListContainers time.Duration `json:"list_containers_seconds"`
	Serial         time.Duration `json:"serial_seconds"`   // the time of its calls one after another
	Changed        int           `json:"changed"`          // pods with events
	Started        int           `json:"started,omitzero"` // pods in which a sandbox or container has started
	Inspected      int           `json:"inspected"`        // pods, reinspections included
	Failed         int           `json:"failed"`           // inspections
}

// PodInspection is the inspection of one pod.
type PodInspection struct {
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Operation string        `json:"operation"` // the call under way, or the last one
	Start     time.Time     `json:"start,omitzero"`
	CallStart time.Time     `json:"call_start,omitzero"`       // of the call under way, zero for none
	Duration  time.Duration `json:"duration_seconds,omitzero"` // 0 while under way
	Err       *CallError    `json:"error,omitzero"`
	Failures  int           `json:"failures,omitzero"` // this pod's failed inspections in a row
	// Throttled is as that of InFlight, since the call under way began.
	Throttled time.Duration `json:"throttled_seconds,omitzero"`
}

// Waited returns how long the call under way has been unanswered at a moment.
func (p *PodInspection) Waited(t time.Time) time.Duration { return t.Sub(p.CalledAt()) - p.Throttled }

// CalledAt returns when the call under way was made, or the inspection where there is none.
func (p *PodInspection) CalledAt() time.Time { return cmp.Or(p.CallStart, p.Start) }

// Modelled is the kubelet's relist: lists, then one inspection after another, as plegd's own.
type Modelled struct {
	LastSeen        time.Time `json:"last_seen,omitzero"`        // start of its last successful relist
	BusySince       time.Time `json:"busy_since,omitzero"`       // start of its relist under way, zero between two
	InspectingSince time.Time `json:"inspecting_since,omitzero"` // when that relist began to inspect
	Inspecting      int       `json:"inspecting,omitzero"`       // how many pods it has yet to finish
	EndsBy          time.Time `json:"ends_by,omitzero"`          // its latest end, zero while its lists are under way
	// Estimated is its last seen where an estimate says that it is older than plegd's own; zero where it is as plegd's.
	Estimated time.Time `json:"estimated,omitzero"`
}

// Status is what the Status calls said.
type Status struct {
	Answered bool      `json:"answered"`           // any Status call
	LastGood time.Time `json:"last_good,omitzero"` // of the last answer with RuntimeReady=true
	Restored bool      `json:"restored,omitzero"`  // all of this comes from before a restart of plegd
	// RuntimeReady and NetworkReady are the conditions of the last answer, nil if it held none.
	RuntimeReady  *Condition `json:"runtime_ready,omitzero"`
	NetworkReady  *Condition `json:"network_ready,omitzero"`
	InFlightSince time.Time  `json:"in_flight_since,omitzero"` // zero between two calls
	LastErr       *CallError `json:"last_error,omitzero"`      // nil if the last call was answered
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

// Events is the state of the runtime's event stream. Counts are since plegd started.
type Events struct {
	Mode     string    `json:"mode"`  // hint or evented
	Phase    string    `json:"phase"` // waiting, streaming, broken, refused, unsupported or ends_at_once since Since
	Since    time.Time `json:"since,omitzero"`
	Detail   string    `json:"detail,omitzero"`
	InUse    bool      `json:"in_use,omitzero"`    // relists are far apart because events report what changes
	FellBack bool      `json:"fell_back,omitzero"` // to the generic loop, until a stream holds again
	// Failures counts the stream's failures since it came into use (hint: since it last held).
	Failures   int        `json:"failures,omitzero"`
	LastFailed time.Time  `json:"last_failed,omitzero"`
	LastErr    *CallError `json:"last_error,omitzero"`
	LastEvent  time.Time  `json:"last_event,omitzero"`

	Opened   uint64            `json:"opened"`            // streams
	Errors   uint64            `json:"errors,omitzero"`   // streams that failed
	Received map[string]uint64 `json:"received,omitzero"` // events by runtime.v1's type
}

// Used reports whether events are put to the use that --events asks for.
func (e *Events) Used() bool { return e.InUse || e.Mode == "hint" && e.Phase == "streaming" }

// FreshDialTimeout is the limit of a stage of a fresh dial.
func (c *Config) FreshDialTimeout() time.Duration { return cmp.Or(c.ProbeTimeout, time.Second) }

// WaitsForSettings reports whether a probe was connected and has had no answer.
func (p *Probe) WaitsForSettings() bool {
	return p.Stage == StageSettings && p.Cause == CauseTimeout
}

const (
	// DefaultNodeStatusPeriod is the kubelet's default nodeStatusUpdateFrequency.
	DefaultNodeStatusPeriod = 10 * time.Second
	// statusJitter is the largest addition to that period, as a share of it (pkg/kubelet/kubelet.go, Run).
	statusJitter = 0.04
)

// StatusPeriod bounds the time between two updates; facts of an older plegd hold none.
func (c *Config) StatusPeriod() (shortest, longest time.Duration) {
	period := cmp.Or(c.NodeStatusPeriod, DefaultNodeStatusPeriod)
	return period, period + time.Duration(float64(period)*statusJitter)
}

// LastSeen is the older of plegd's and the modelled kubelet's last seen, which decides; zero without one.
func LastSeen(f *Facts) time.Time {
	if f.Modelled.LastSeen.Before(f.Relist.LastSeen) {
		return f.Modelled.LastSeen
	}
	return f.Relist.LastSeen
}

// RelistBegan returns the start of the relist under way, zero between two. A later list may be shown beside it.
func RelistBegan(f *Facts) time.Time {
	began := f.Modelled.BusySince
	if f.Relist.InFlight != nil {
		began = Earliest(began, f.Relist.InFlight.Start)
	}
	return began
}

// ConditionsGood reports whether the last answer had only good conditions.
func (s *Status) ConditionsGood() bool { return s.RuntimeReady.Good() && s.NetworkReady.Good() }

// Good reports whether the condition was given and is true.
func (c *Condition) Good() bool { return c != nil && c.Status }

// KubeletText prints a condition as the kubelet does (container/runtime.go, RuntimeCondition.String).
func (c *Condition) KubeletText(kind string) string {
	if c == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s=%t reason:%s message:%s", kind, c.Status, c.Reason, c.Message)
}

// HangAfter is the minimum time for which a call is unanswered before it counts as hanging. A list must also
// take three times the median of the recent lists; a list that is arriving does not hang.
const HangAfter = 1500 * time.Millisecond
