package view

import (
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// StatusSchemaVersion is the version of StatusDocument. Fields may be added
// under one version; it grows when one is renamed, removed or changes meaning.
const StatusSchemaVersion = 1

// StatusDocument is what /api/v1/status answers and what plegd status and plegd
// check read. Times are RFC 3339 in UTC, durations are seconds, sizes bytes. A
// pointer that is nil is null: not known, or not so at the moment. A string
// that has nothing to say is empty.
type StatusDocument struct {
	SchemaVersion int    `json:"schema_version"`
	PlegdVersion  string `json:"plegd_version"`
	// Node is the name of the host; empty when it has none.
	Node string `json:"node"`
	// Now is when the document was made, Started when plegd started.
	Now     time.Time `json:"now"`
	Started time.Time `json:"started"`

	// State is starting, healthy, degraded or unhealthy; Since is when it last
	// changed.
	State string     `json:"state"`
	Since *time.Time `json:"since"`
	// Reason is the primary reason, RunnerUp the one that the evidence fits
	// nearly as well. Both are also among Reasons when they are active.
	Reason   string `json:"reason"`
	RunnerUp string `json:"runner_up"`
	// Symptom is the reason that says what the kubelet suffers, beside a primary one
	// that says why. Chain leads from the call that hangs to Culprit, its last link;
	// ChainEnd says why it ends before the one who waits for nobody.
	Symptom  string        `json:"symptom"`
	Chain    []health.Link `json:"chain,omitempty"`
	ChainEnd string        `json:"chain_end,omitempty"`
	Culprit  *health.Link  `json:"culprit,omitempty"`
	// Reasons are all active reasons, the primary one first.
	Reasons []ReasonDocument `json:"reasons"`
	// KubeletMessage is the Ready condition's message, word for word, as the API
	// has it or will have it; empty when neither is so.
	KubeletMessage  string `json:"kubelet_message"`
	PLEGHealthy     bool   `json:"pleg_healthy"`
	SyncLoopAllowed bool   `json:"sync_loop_allowed"`
	// Kubelet is the modelled kubelet.
	Kubelet ModelDocument `json:"kubelet"`

	LastSeen            *time.Time `json:"last_seen"`
	LastSeenAge         *float64   `json:"last_seen_age_seconds"`
	ModelledLastSeen    *time.Time `json:"modelled_last_seen"`
	ModelledLastSeenAge *float64   `json:"modelled_last_seen_age_seconds"`
	Threshold           float64    `json:"threshold_seconds"`
	RelistPeriod        float64    `json:"relist_period_seconds"`
	// NotReadyIn is the earliest time until the API shows the node NotReady if
	// nothing changes, NotReadyInLatest the latest. Both are 0 when it does, and
	// null while nothing points that way.
	NotReadyIn       *float64 `json:"not_ready_in_seconds"`
	NotReadyInLatest *float64 `json:"not_ready_in_latest_seconds"`
	// Next says what to do next, Steps are the commands and looks of the primary
	// reason's runbook with this node's own values.
	Next  string   `json:"next"`
	Steps []string `json:"steps,omitempty"`

	Runtime     *RuntimeDocument             `json:"runtime"`
	Endpoint    EndpointDocument             `json:"endpoint"`
	Relist      RelistDocument               `json:"relist"`
	Operations  map[string]OperationDocument `json:"operations"`
	StatusCheck StatusCheckDocument          `json:"status_check"`
	Probe       *ProbeDocument               `json:"probe"`
	Evidence    EvidenceDocument             `json:"evidence"`
	Events      EventsDocument               `json:"events"`
	Pods        PodsDocument                 `json:"pods"`

	// Incidents are for the page only: they have a path of their own.
	Incidents []incident.Summary `json:"-"`
	// Recent is for the page only, which fills it in: a Prometheus has the
	// histograms.
	Recent []RelistBin `json:"-"`
}

// ModelDocument is the modelled kubelet: its rules, and what its node status
// update has written to the API.
type ModelDocument struct {
	// RulesOK is false when by its own rules the kubelet no longer manages pods.
	// RulesFailIn is the time until then if nothing changes, 0 when it is so, null
	// while nothing points that way.
	RulesOK     bool     `json:"rules_ok"`
	RulesFailIn *float64 `json:"rules_fail_in_seconds"`
	// NodeReady is the Ready condition in the API.
	NodeReady bool `json:"node_ready"`
	// Started is when the node's kubelet started, null where its process is not
	// seen.
	Started *time.Time `json:"started"`
	// RPCTimeout and NodeStatusPeriod are those in force; From says where each of
	// the kubelet's settings comes from. EventedPLEG is the kubelet's feature gate.
	RPCTimeout       float64           `json:"rpc_timeout_seconds"`
	NodeStatusPeriod float64           `json:"node_status_period_seconds"`
	EventedPLEG      bool              `json:"evented_pleg"`
	From             map[string]string `json:"from"`
	// Problem says what of the kubelet's settings could not be read.
	Problem string `json:"problem"`
	// ReadyIn and ReadyInLatest bound the time until the API shows the node Ready
	// again; null unless the rules hold and it shows, or may show, NotReady.
	ReadyIn       *float64 `json:"ready_in_seconds"`
	ReadyInLatest *float64 `json:"ready_in_latest_seconds"`
}

// ReasonDocument is one active reason.
type ReasonDocument struct {
	ID       string    `json:"id"`
	Severity string    `json:"severity"`
	Since    time.Time `json:"since"`
	Evidence []string  `json:"evidence"`
}

// RuntimeDocument is what the runtime says of itself.
type RuntimeDocument struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	CRIVersion string `json:"cri_version"`
}

// EndpointDocument is the runtime's socket. Path is empty while none has been
// found; Searched then lists where plegd looked.
type EndpointDocument struct {
	Path     string   `json:"path"`
	Source   string   `json:"source"`
	Searched []string `json:"searched,omitempty"`
}

// RelistDocument is the relist loop.
type RelistDocument struct {
	// Attempts counts the relists since plegd started, Failures the failed ones
	// since the last success.
	Attempts uint64 `json:"attempts"`
	Failures int    `json:"failures"`
	// TypicalLists is the median time of both lists together over the recent
	// successful relists.
	TypicalLists *float64          `json:"typical_lists_seconds"`
	InFlight     *InFlightDocument `json:"in_flight"`
	Last         *LastRelist       `json:"last"`
}

// InFlightDocument is the relist under way. Seconds is its age, PhaseSeconds
// that of its phase. Pods are to be inspected, Inspected of them have been.
type InFlightDocument struct {
	Phase        string  `json:"phase"`
	Seconds      float64 `json:"seconds"`
	PhaseSeconds float64 `json:"phase_seconds"`
	Pods         int     `json:"pods"`
	Inspected    int     `json:"inspected"`
}

// LastRelist is the last relist that ended. Serial is the time that it would
// have taken with its calls one after another, as the kubelet makes them.
type LastRelist struct {
	Start          time.Time      `json:"start"`
	Seconds        float64        `json:"seconds"`
	Serial         float64        `json:"serial_seconds"`
	ListPodSandbox float64        `json:"list_podsandbox_seconds"`
	ListContainers float64        `json:"list_containers_seconds"`
	Changed        int            `json:"changed"`
	Inspected      int            `json:"inspected"`
	Failed         int            `json:"failed"`
	Error          *ErrorDocument `json:"error"`
}

// ErrorDocument is why a call failed. Bytes and Limit are set when a message
// was refused for its size. Message is empty where it could hold a name that
// may not be shown.
type ErrorDocument struct {
	Operation string `json:"operation"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Bytes     int    `json:"bytes,omitempty"`
	Limit     int    `json:"limit,omitempty"`
}

// OperationDocument is the recent history of one operation.
type OperationDocument struct {
	// LastOK is when the last successful call ended, LastOKSeconds its time.
	LastOK        *time.Time `json:"last_ok"`
	LastOKSeconds *float64   `json:"last_ok_seconds"`
	// LastFailed is when the last failed call ended, LastError why.
	LastFailed *time.Time     `json:"last_failed"`
	LastError  *ErrorDocument `json:"last_error"`
	// InFlightSeconds is the age of the oldest call under way.
	InFlightSeconds *float64 `json:"in_flight_seconds"`
	// Bytes is the size of the last answer, or of the one refused for it.
	Bytes *int `json:"bytes"`
}

// StatusCheckDocument is the kubelet's runtime status check.
type StatusCheckDocument struct {
	// LastGood is when the last answer with RuntimeReady=true came.
	LastGood        *time.Time         `json:"last_good"`
	LastGoodAge     *float64           `json:"last_good_age_seconds"`
	InFlightSeconds *float64           `json:"in_flight_seconds"`
	LastError       *ErrorDocument     `json:"last_error"`
	Conditions      ConditionsDocument `json:"conditions"`
}

// ConditionsDocument are the conditions of the last Status answer, null when it
// held none.
type ConditionsDocument struct {
	RuntimeReady *ConditionDocument `json:"runtime_ready"`
	NetworkReady *ConditionDocument `json:"network_ready"`
}

// ConditionDocument is one condition of a Status answer.
type ConditionDocument struct {
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ProbeDocument is the last fresh dial. Stage is where it failed and Cause why;
// both are empty when it did not. A stage that was not reached is null.
type ProbeDocument struct {
	At              time.Time `json:"at"`
	OK              bool      `json:"ok"`
	Stage           string    `json:"stage"`
	Cause           string    `json:"cause"`
	Detail          string    `json:"detail"`
	ConnectSeconds  *float64  `json:"connect_seconds"`
	SettingsSeconds *float64  `json:"settings_seconds"`
	RPCSeconds      *float64  `json:"rpc_seconds"`
	Failures        int       `json:"failures"`
}

// PodsDocument is what runs on the node.
type PodsDocument struct {
	// Running counts the pods, Containers the containers by state; null before
	// the first successful relist.
	Running    *int           `json:"running"`
	Containers map[string]int `json:"containers"`
	// Reinspect counts the pods that wait for reinspection.
	Reinspect int `json:"reinspect"`
	// Slowest are the slowest inspections of the recent relists, Stuck those
	// that have been under way for longer than a second, Failing those that
	// failed: a handful of each, the worst first.
	Slowest []PodInspectionDocument `json:"slowest"`
	Stuck   []PodInspectionDocument `json:"stuck"`
	Failing []PodInspectionDocument `json:"failing"`
}

// PodInspectionDocument is the inspection of one pod. Pod is null where names
// may not be shown.
type PodInspectionDocument struct {
	Pod       *PodDocument `json:"pod"`
	Operation string       `json:"operation"`
	Start     time.Time    `json:"start"`
	// Seconds is its time, or its age while it is under way.
	Seconds  float64        `json:"seconds"`
	Failures int            `json:"failures"`
	Error    *ErrorDocument `json:"error"`
}

// PodDocument names a pod.
type PodDocument struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}
