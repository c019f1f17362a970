package exporter

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// responseLimit is the largest answer, in bytes, that the kubelet's client
// takes (pkg/kubelet/cri/remote/utils: maxMsgSize). It is the kubelet's whether
// or not the runtime or plegd would take more.
const responseLimit = 16 << 20

// ReasonLabel is one row of the reason table, as far as a metric shows it.
type ReasonLabel struct {
	// ID and Severity are the values of the labels reason and severity. A reason
	// with several severities has one of these for each, next to each other.
	ID, Severity string
}

// Source has the newest snapshot.
type Source interface {
	// Snapshot returns it with its ages as of now.
	Snapshot(now time.Time) health.Snapshot
}

// Collector makes the gauges that depend on the moment of the scrape, all of
// them from one snapshot: so a relist that never returns shows at the next
// scrape, and no two of them contradict each other. What the snapshot does not
// know is absent, never a false 0.
type Collector struct {
	src     Source
	now     func() time.Time
	reasons []ReasonLabel

	// mu is held from the making of a scrape's numbers until they are written: the
	// next scrape sets them.
	mu       sync.Mutex
	families families

	lastSeen, lastSeenAge, modelledAge        *family
	notReadyIn, rulesFailIn                   *family
	healthy, syncLoop, nodeReady              *family
	threshold, period                         *family
	verdict, lastChange, reason, primary      *family
	culprit                                   *family
	inFlight, reinspect, pods, containers     *family
	bytes, limit, statusSeen, info, condition *family
	evidence                                  *evidenceCollector
	events                                    *eventsCollector
}

// NewCollector returns a collector over src. reasons is the whole reason table:
// each row has its series from the first scrape on.
func NewCollector(src Source, reasons []ReasonLabel) *Collector {
	return newCollector(src, reasons, time.Now)
}

func newCollector(src Source, reasons []ReasonLabel, now func() time.Time) *Collector {
	var fs families
	c := &Collector{
		src: src, now: now, reasons: reasons,

		lastSeen: fs.gauge(MetricLastSeen,
			"Unix time at which the last successful relist started; 0 before the first. In custom rules add > 0."),
		lastSeenAge: fs.gauge(MetricLastSeenAge,
			"Time since the last successful relist started, by the monotonic clock; absent before the first. A healthy node stays near "+MetricRelistPeriod+"."),
		modelledAge: fs.gauge(MetricModelledAge,
			"Time since the modelled kubelet's last successful relist started: what this node's kubelet holds against "+MetricThreshold+". Absent before the first."),
		notReadyIn: fs.gauge(MetricNotReadyIn,
			"Earliest time until the API shows the node NotReady if nothing changes; 0 when it does. Absent while nothing points that way."),
		rulesFailIn: fs.gauge(MetricRulesFailIn,
			"Time until the kubelet stops managing pods by its own rules if nothing changes; 0 when it has. The API shows it later: "+MetricNotReadyIn+". Absent while nothing points that way."),
		healthy: fs.gauge(MetricHealthy,
			"1 while the kubelet's PLEG rule holds: its last successful relist is younger than "+MetricThreshold+"."),
		syncLoop: fs.gauge(MetricSyncLoopAllowed,
			"1 while no runtime error stands. At 0 the kubelet skips pod synchronization: it starts, stops and cleans up nothing."),
		nodeReady: fs.gauge(MetricNodeReadyPredicted,
			"1 while the node's Ready condition in the API is True by the model of the kubelet's node status update, as far as the runtime and its network decide."),
		threshold: fs.gauge(MetricThreshold,
			"Age of the last successful relist from which on the kubelet calls the PLEG unhealthy; the one in force."),
		period: fs.gauge(MetricRelistPeriod,
			"Time from the end of a relist to the start of the next; the one in force."),
		verdict: fs.gauge(MetricVerdict,
			"1 for plegd's present verdict, 0 for the other states. degraded: something is wrong and the kubelet would still call the node Ready.", labelState),
		lastChange: fs.gauge(MetricVerdictLastChange,
			"Unix time at which the verdict's state last changed."),
		reason: fs.gauge(MetricReason,
			"1 while a reason is active. Several may be; the one to act on is in "+MetricPrimaryReason+".", labelReason, labelSeverity),
		primary: fs.gauge(MetricPrimaryReason,
			"1 for the primary reason, 0 for the others; all 0 when healthy. What it means and what to do: plegd reasons ID.", labelReason),
		culprit: fs.gauge(MetricCulprit,
			"1 for the kind of the last link of the chain of waiting, 0 for the others; all 0 while there is no chain. Which one it is, plegd status shows.", labelKind),

		inFlight: fs.gauge(MetricRelistInFlight,
			"Age of the phase of the relist that is under way; 0 for the phases that are not. Moves during a hang.", labelPhase),
		reinspect: fs.gauge(MetricReinspectPods,
			"Pods whose last inspection failed and that wait for the next relist to inspect them again."),
		pods: fs.gauge(MetricRunningPods,
			"Pods with a running sandbox at the last successful relist, as kubelet_running_pods; absent before the first."),
		containers: fs.gauge(MetricRunningContainers,
			"Containers at the last successful relist, by state, as kubelet_running_containers but never stale; absent before the first.", labelContainerState),

		bytes: fs.gauge(MetricResponseBytes,
			"Size on the wire of the last answer to each list; of a list refused for its size, the size that it had. Absent before the first.", labelOperation),
		limit: fs.gauge(MetricResponseLimit,
			"Largest answer that the kubelet takes. A list above it fails every relist."),
		statusSeen: fs.gauge(MetricRuntimeStatusLastSeen,
			"Unix time of the last good Status answer (RuntimeReady=true); 0 before the first. A kubelet whose own last one is 30 s old stops managing pods: container runtime is down."),
		info: fs.gauge(MetricRuntimeInfo,
			"Always 1; the labels say which runtime answers. Absent before its first Version answer.",
			"endpoint", "runtime_name", "runtime_version", "cri_version"),
		condition: fs.gauge(MetricRuntimeCondition,
			"1 while the last Status answer said that the condition is true, 0 while it said false; absent before it said either.", labelType),

		evidence: newEvidenceCollector(&fs),
		events:   newEventsCollector(&fs),
	}
	c.families = fs
	return c
}

// With returns a gatherer of what others has and of what c makes. It does not check
// them against each other as a registry does, which takes longer than to make them.
func (c *Collector) With(others prometheus.Gatherer) prometheus.TransactionalGatherer {
	return &gatherer{others: others, collector: c}
}

type gatherer struct {
	others    prometheus.Gatherer
	collector *Collector
}

// Gather returns the metrics by name. They hold until done is called.
func (g *gatherer) Gather() (all []*dto.MetricFamily, done func(), err error) {
	c := g.collector
	all, err = g.others.Gather() // before the lock: it may hang in /proc
	s := c.src.Snapshot(c.now())
	c.mu.Lock()
	c.collect(&s)
	for _, f := range c.families {
		if out := f.finish(); len(out.GetMetric()) > 0 {
			all = append(all, out)
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, c.mu.Unlock, err
}

func (c *Collector) collect(s *health.Snapshot) {
	c.collectVerdict(s)
	c.collectRelist(s)
	c.collectRuntime(s)
	c.evidence.collect(&s.Facts.Evidence)
	c.events.collect(s.Facts.Events)
}

func (c *Collector) collectVerdict(s *health.Snapshot) {
	v := &s.Verdict
	c.lastSeen.set(unixSeconds(health.Wall(s.At, v.LastSeen)))
	if !v.LastSeen.IsZero() {
		c.lastSeenAge.set(v.LastSeenAge.Seconds())
	}
	if !v.ModelledLastSeen.IsZero() {
		c.modelledAge.set(v.ModelledAge.Seconds())
	}
	if v.NotReadyIn != nil {
		c.notReadyIn.set(v.NotReadyIn.Seconds())
	}
	if v.RulesFailIn != nil {
		c.rulesFailIn.set(v.RulesFailIn.Seconds())
	}
	c.healthy.setBool(v.PLEGHealthy)
	c.syncLoop.setBool(v.SyncLoopAllowed)
	c.nodeReady.setBool(v.NodeReady)
	c.threshold.set(v.Threshold.Seconds())
	c.period.set(s.Facts.Config.RelistPeriod.Seconds())
	for _, state := range health.States() {
		c.verdict.setBool(v.State == state, string(state))
	}
	if !v.Since.IsZero() {
		c.lastChange.set(unixSeconds(health.Wall(s.At, v.Since)))
	}
	for _, kind := range health.CulpritKinds() {
		c.culprit.setBool(v.Culprit != nil && v.Culprit.Kind == kind, string(kind))
	}
	for i, r := range c.reasons {
		severity, active := activeSeverity(v, r.ID)
		is := func(j int) bool { return j >= 0 && j < len(c.reasons) && c.reasons[j].ID == r.ID }
		oneOfSeveral := is(i-1) || is(i+1)
		c.reason.setBool(active && (!oneOfSeveral || r.Severity == string(severity)), r.ID, r.Severity)
		if !is(i - 1) {
			c.primary.setBool(v.Reason == r.ID, r.ID)
		}
	}
}

// activeSeverity returns the severity of a reason that is active.
func activeSeverity(v *health.Verdict, id string) (severity health.Severity, active bool) {
	for i := range v.Active {
		if v.Active[i].ID == id {
			return v.Active[i].Severity, true
		}
	}
	return "", false
}

func (c *Collector) collectRelist(s *health.Snapshot) {
	for _, phase := range health.Phases() {
		var age time.Duration
		if f := s.Facts.Relist.InFlight; f != nil && f.Phase == phase {
			// A phase that begins between the clock's reading and the
			// snapshot has not been under way for less than nothing.
			age = s.Age(f.PhaseStart)
		}
		c.inFlight.set(age.Seconds(), string(phase))
	}
	c.reinspect.set(float64(s.Facts.Relist.Reinspect))
	if s.Facts.Pods == nil {
		return
	}
	c.pods.set(float64(s.Facts.Pods.Running))
	for state := range cri.NumStates {
		name := cri.State(state).String()
		c.containers.set(float64(s.Facts.Pods.Containers[name]), name)
	}
}

func (c *Collector) collectRuntime(s *health.Snapshot) {
	for _, op := range []cri.Operation{cri.OpListPodSandbox, cri.OpListContainers} {
		if call, ok := s.Facts.Calls[string(op)]; ok && call.Answered() {
			c.bytes.set(float64(call.Bytes), string(op))
		}
	}
	c.limit.set(responseLimit)
	c.statusSeen.set(unixSeconds(health.Wall(s.At, s.Facts.Status.LastGood)))
	if r := s.Facts.Runtime; r != (health.Runtime{}) {
		c.info.set(1, label(s.Facts.Endpoint.Path), label(r.Name), label(r.Version), label(r.CRIVersion))
	}
	if cond := s.Facts.Status.RuntimeReady; cond != nil {
		c.condition.setBool(cond.Status, "RuntimeReady")
	}
	if cond := s.Facts.Status.NetworkReady; cond != nil {
		c.condition.setBool(cond.Status, "NetworkReady")
	}
}

// maxLabel is the most bytes of a label's value that comes from the runtime.
const maxLabel = 128

// label makes what the runtime says of itself fit to be a label: a value that
// is not valid UTF-8 would cost the metric, a long one everybody's memory.
func label(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel], "")
	}
	return s
}

// unixSeconds returns t as Unix time in seconds with fractions; 0 for never.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
