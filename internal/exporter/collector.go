package exporter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	reasons []reasonSeries
	states  map[health.State]boolSeries

	lastSeen, lastSeenAge, modelledAge        *prometheus.Desc
	notReadyIn, rulesFailIn                   *prometheus.Desc
	healthy, syncLoop, nodeReady              *prometheus.Desc
	threshold, period                         *prometheus.Desc
	verdict, lastChange, reason, primary      *prometheus.Desc
	culprit                                   *prometheus.Desc
	inFlight, reinspect, pods, containers     *prometheus.Desc
	bytes, limit, statusSeen, info, condition *prometheus.Desc
	evidence                                  *evidenceCollector
	events                                    *eventsCollector
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector over src. reasons is the whole reason table:
// each row has its series from the first scrape on.
func NewCollector(src Source, reasons []ReasonLabel) *Collector {
	return newCollector(src, reasons, time.Now)
}

func newCollector(src Source, reasons []ReasonLabel, now func() time.Time) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	c := &Collector{
		src: src, now: now, states: make(map[health.State]boolSeries),

		lastSeen: desc(MetricLastSeen,
			"Unix time at which the last successful relist started; 0 before the first. In custom rules add > 0."),
		lastSeenAge: desc(MetricLastSeenAge,
			"Time since the last successful relist started, by the monotonic clock; absent before the first. A healthy node stays near "+MetricRelistPeriod+"."),
		modelledAge: desc(MetricModelledAge,
			"Time since the modelled kubelet's last successful relist started: what this node's kubelet holds against "+MetricThreshold+". Absent before the first."),
		notReadyIn: desc(MetricNotReadyIn,
			"Earliest time until the API shows the node NotReady if nothing changes; 0 when it does. Absent while nothing points that way."),
		rulesFailIn: desc(MetricRulesFailIn,
			"Time until the kubelet stops managing pods by its own rules if nothing changes; 0 when it has. The API shows it later: "+MetricNotReadyIn+". Absent while nothing points that way."),
		healthy: desc(MetricHealthy,
			"1 while the kubelet's PLEG rule holds: its last successful relist is younger than "+MetricThreshold+"."),
		syncLoop: desc(MetricSyncLoopAllowed,
			"1 while no runtime error stands. At 0 the kubelet skips pod synchronization: it starts, stops and cleans up nothing."),
		nodeReady: desc(MetricNodeReadyPredicted,
			"1 while the node's Ready condition in the API is True by the model of the kubelet's node status update, as far as the runtime and its network decide."),
		threshold: desc(MetricThreshold,
			"Age of the last successful relist from which on the kubelet calls the PLEG unhealthy; the one in force."),
		period: desc(MetricRelistPeriod,
			"Time from the end of a relist to the start of the next; the one in force."),
		verdict: desc(MetricVerdict,
			"1 for plegd's present verdict, 0 for the other states. degraded: something is wrong and the kubelet would still call the node Ready.", labelState),
		lastChange: desc(MetricVerdictLastChange,
			"Unix time at which the verdict's state last changed."),
		reason: desc(MetricReason,
			"1 while a reason is active. Several may be; the one to act on is in "+MetricPrimaryReason+".", labelReason, labelSeverity),
		primary: desc(MetricPrimaryReason,
			"1 for the primary reason, 0 for the others; all 0 when healthy. What it means and what to do: plegd reasons ID.", labelReason),
		culprit: desc(MetricCulprit,
			"1 for the kind of the last link of the chain of waiting, 0 for the others; all 0 while there is no chain. Which one it is, plegd status shows.", labelKind),

		inFlight: desc(MetricRelistInFlight,
			"Age of the phase of the relist that is under way; 0 for the phases that are not. Moves during a hang.", labelPhase),
		reinspect: desc(MetricReinspectPods,
			"Pods whose last inspection failed and that wait for the next relist to inspect them again."),
		pods: desc(MetricRunningPods,
			"Pods with a running sandbox at the last successful relist, as kubelet_running_pods; absent before the first."),
		containers: desc(MetricRunningContainers,
			"Containers at the last successful relist, by state, as kubelet_running_containers but never stale; absent before the first.", labelContainerState),

		bytes: desc(MetricResponseBytes,
			"Size on the wire of the last answer to each list; of a list refused for its size, the size that it had. Absent before the first.", labelOperation),
		limit: desc(MetricResponseLimit,
			"Largest answer that the kubelet takes. A list above it fails every relist."),
		statusSeen: desc(MetricRuntimeStatusLastSeen,
			"Unix time of the last good Status answer (RuntimeReady=true); 0 before the first. A kubelet whose own last one is 30 s old stops managing pods: container runtime is down."),
		info: desc(MetricRuntimeInfo,
			"Always 1; the labels say which runtime answers. Absent before its first Version answer.",
			"endpoint", "runtime_name", "runtime_version", "cri_version"),
		condition: desc(MetricRuntimeCondition,
			"1 while the last Status answer said that the condition is true, 0 while it said false; absent before it said either.", labelType),

		evidence: newEvidenceCollector(),
		events:   newEventsCollector(),
	}
	for _, state := range health.States() {
		c.states[state] = newBoolSeries(c.verdict, string(state))
	}
	for _, r := range reasons {
		series := severitySeries{health.Severity(r.Severity), newBoolSeries(c.reason, r.ID, r.Severity)}
		if n := len(c.reasons); n > 0 && c.reasons[n-1].id == r.ID {
			c.reasons[n-1].active = append(c.reasons[n-1].active, series)
			continue
		}
		c.reasons = append(c.reasons, reasonSeries{id: r.ID, active: []severitySeries{series}, primary: newBoolSeries(c.primary, r.ID)})
	}
	return c
}

// reasonSeries are the series of a reason: whether it is active, with each of its
// severities, and whether it is primary.
type reasonSeries struct {
	id      string
	active  []severitySeries
	primary boolSeries
}

type severitySeries struct {
	severity health.Severity
	boolSeries
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.lastSeen, c.lastSeenAge, c.modelledAge, c.notReadyIn, c.rulesFailIn, c.healthy, c.syncLoop, c.nodeReady,
		c.threshold, c.period, c.verdict, c.lastChange, c.reason, c.primary, c.culprit,
		c.inFlight, c.reinspect, c.pods, c.containers,
		c.bytes, c.limit, c.statusSeen, c.info, c.condition,
	} {
		ch <- d
	}
	c.evidence.describe(ch)
	c.events.describe(ch)
}

// Collect takes one snapshot and sends what it holds.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.src.Snapshot(c.now())
	g := gauges{ch}
	c.collectVerdict(g, &s)
	c.collectRelist(g, &s)
	c.collectRuntime(g, &s)
	c.evidence.collect(g, &s.Facts.Evidence)
	c.events.collect(g, s.Facts.Events)
}

func (c *Collector) collectVerdict(g gauges, s *health.Snapshot) {
	v := &s.Verdict
	g.send(c.lastSeen, unixSeconds(health.Wall(s.At, v.LastSeen)))
	if !v.LastSeen.IsZero() {
		g.send(c.lastSeenAge, v.LastSeenAge.Seconds())
	}
	if !v.ModelledLastSeen.IsZero() {
		g.send(c.modelledAge, v.ModelledAge.Seconds())
	}
	if v.NotReadyIn != nil {
		g.send(c.notReadyIn, v.NotReadyIn.Seconds())
	}
	if v.RulesFailIn != nil {
		g.send(c.rulesFailIn, v.RulesFailIn.Seconds())
	}
	g.sendBool(c.healthy, v.PLEGHealthy)
	g.sendBool(c.syncLoop, v.SyncLoopAllowed)
	g.sendBool(c.nodeReady, v.NodeReady)
	g.send(c.threshold, v.Threshold.Seconds())
	g.send(c.period, s.Facts.Config.RelistPeriod.Seconds())
	for _, state := range health.States() {
		g.ch <- c.states[state].is(v.State == state)
	}
	if !v.Since.IsZero() {
		g.send(c.lastChange, unixSeconds(health.Wall(s.At, v.Since)))
	}
	for _, kind := range health.CulpritKinds() {
		g.sendBool(c.culprit, v.Culprit != nil && v.Culprit.Kind == kind, string(kind))
	}
	for _, r := range c.reasons {
		severity, active := activeSeverity(v, r.id)
		for _, s := range r.active {
			g.ch <- s.is(active && (len(r.active) == 1 || s.severity == severity))
		}
		g.ch <- r.primary.is(v.Reason == r.id)
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

func (c *Collector) collectRelist(g gauges, s *health.Snapshot) {
	for _, phase := range health.Phases() {
		var age time.Duration
		if f := s.Facts.Relist.InFlight; f != nil && f.Phase == phase {
			// A phase that begins between the clock's reading and the
			// snapshot has not been under way for less than nothing.
			age = s.Age(f.PhaseStart)
		}
		g.send(c.inFlight, age.Seconds(), string(phase))
	}
	g.send(c.reinspect, float64(s.Facts.Relist.Reinspect))
	if s.Facts.Pods == nil {
		return
	}
	g.send(c.pods, float64(s.Facts.Pods.Running))
	for state := range cri.NumStates {
		name := cri.State(state).String()
		g.send(c.containers, float64(s.Facts.Pods.Containers[name]), name)
	}
}

func (c *Collector) collectRuntime(g gauges, s *health.Snapshot) {
	for _, op := range []cri.Operation{cri.OpListPodSandbox, cri.OpListContainers} {
		if call, ok := s.Facts.Calls[string(op)]; ok && call.Answered() {
			g.send(c.bytes, float64(call.Bytes), string(op))
		}
	}
	g.send(c.limit, responseLimit)
	g.send(c.statusSeen, unixSeconds(health.Wall(s.At, s.Facts.Status.LastGood)))
	if r := s.Facts.Runtime; r != (health.Runtime{}) {
		g.send(c.info, 1, label(s.Facts.Endpoint.Path), label(r.Name), label(r.Version), label(r.CRIVersion))
	}
	if cond := s.Facts.Status.RuntimeReady; cond != nil {
		g.sendBool(c.condition, cond.Status, "RuntimeReady")
	}
	if cond := s.Facts.Status.NetworkReady; cond != nil {
		g.sendBool(c.condition, cond.Status, "NetworkReady")
	}
}

// gauges sends gauges to a scrape.
type gauges struct{ ch chan<- prometheus.Metric }

func (g gauges) send(d *prometheus.Desc, v float64, labels ...string) {
	g.sendAs(prometheus.GaugeValue, d, v, labels...)
}

// sendCounter sends a counter that somebody else keeps.
func (g gauges) sendCounter(d *prometheus.Desc, v float64, labels ...string) {
	g.sendAs(prometheus.CounterValue, d, v, labels...)
}

func (g gauges) sendAs(t prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	g.ch <- m
}

func (g gauges) sendBool(d *prometheus.Desc, v bool, labels ...string) {
	if v {
		g.send(d, 1, labels...)
		return
	}
	g.send(d, 0, labels...)
}

// boolSeries is a gauge of 1 or 0 whose labels are known from the start. Most of
// them are those of the reasons; making them again was a tenth of a scrape's
// garbage.
type boolSeries struct{ set, unset prometheus.Metric }

func newBoolSeries(d *prometheus.Desc, labels ...string) boolSeries {
	return boolSeries{
		set:   prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 1, labels...),
		unset: prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 0, labels...),
	}
}

func (s boolSeries) is(v bool) prometheus.Metric {
	if v {
		return s.set
	}
	return s.unset
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
