package exporter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// responseLimit is the largest response, in bytes, that the kubelet's client
// accepts (pkg/kubelet/cri/remote/utils: maxMsgSize).
const responseLimit = 16 << 20

// Source has the newest snapshot.
type Source interface {
	// Snapshot returns it with its ages as of now.
	Snapshot(now time.Time) health.Snapshot
}

// Collector computes the gauges that depend on the moment of the scrape, all from
// one snapshot: a relist that never returns shows at the next scrape. A value that
// is not known is absent.
type Collector struct {
	src     Source
	node    func() Node
	version string
	now     func() time.Time
	descs   map[string]*prometheus.Desc
}

// NewCollector returns a collector over src. node is called at each scrape and must
// not block; version is plegd's own.
func NewCollector(src Source, node func() Node, version string) *Collector {
	return newCollector(src, node, version, time.Now)
}

func newCollector(src Source, node func() Node, version string, now func() time.Time) *Collector {
	c := &Collector{src: src, node: node, version: version, now: now, descs: map[string]*prometheus.Desc{}}
	for _, d := range append(verdictDescs(), evidenceDescs()...) {
		c.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return c
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect sends the metrics of one snapshot.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.src.Snapshot(c.now())
	out := sink{ch, c.descs}
	out.verdict(&s)
	out.relist(&s)
	out.runtime(&s)
	out.events(s.Facts.Events)
	out.evidence(&s.Facts.Evidence)
	n, r := c.node(), &s.Facts.Runtime
	out.gauge(MetricNodeInfo, 1,
		r.Name, r.Version, n.Kernel, n.OSImage, n.CgroupVersion, c.version)
}

// sink sends metrics by their names.
type sink struct {
	ch    chan<- prometheus.Metric
	descs map[string]*prometheus.Desc
}

func (s sink) send(t prometheus.ValueType, name string, v float64, labels []string) {
	for i := range labels {
		labels[i] = label(labels[i])
	}
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], t, v, labels...)
}

func (s sink) gauge(name string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, v, labels)
}

func (s sink) counter(name string, v uint64, labels ...string) {
	s.send(prometheus.CounterValue, name, float64(v), labels)
}

func (s sink) flag(name string, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.gauge(name, n, labels...)
}

func (s sink) verdict(snap *health.Snapshot) {
	v := &snap.Verdict
	s.gauge(MetricLastSeen, unixSeconds(health.Wall(snap.At, v.LastSeen)))
	if !v.LastSeen.IsZero() {
		s.gauge(MetricLastSeenAge, v.LastSeenAge.Seconds())
	}
	if v.NotReadyIn != nil {
		s.gauge(MetricNotReadyIn, v.NotReadyIn.Seconds())
	}
	if v.RulesFailIn != nil {
		s.gauge(MetricRulesFailIn, v.RulesFailIn.Seconds())
	}
	s.flag(MetricHealthy, v.PLEGHealthy)
	s.flag(MetricSyncLoopAllowed, v.SyncLoopAllowed)
	s.flag(MetricNodeReadyPredicted, v.NodeReady)
	s.gauge(MetricThreshold, v.Threshold.Seconds())
	s.gauge(MetricRelistPeriod, snap.Facts.Config.RelistPeriod.Seconds())
	for _, state := range health.States() {
		s.flag(MetricVerdict, v.State == state, string(state))
	}
	if !v.Since.IsZero() {
		s.gauge(MetricVerdictLastChange, unixSeconds(health.Wall(snap.At, v.Since)))
	}
	for i := range v.Active {
		if a := &v.Active[i]; health.Known(a.ID) { // other hosts read it: no text but the table's
			s.gauge(MetricReason, 1, a.ID, string(a.Severity))
		}
	}
	if v.Reason != "" {
		s.gauge(MetricPrimaryReason, 1, v.Reason)
	}
	if v.Culprit != nil {
		s.gauge(MetricCulprit, 1, string(v.Culprit.Kind), v.Culprit.ID())
	}
}

func (s sink) relist(snap *health.Snapshot) {
	for _, phase := range health.Phases() {
		var age time.Duration
		if f := snap.Facts.Relist.InFlight; f != nil && f.Phase == phase {
			age = snap.Age(f.PhaseStart)
		}
		s.gauge(MetricRelistInFlight, age.Seconds(), string(phase))
	}
	if snap.Facts.Pods == nil {
		return
	}
	s.gauge(MetricRunningPods, float64(snap.Facts.Pods.Running))
	for state := range cri.NumStates {
		name := cri.State(state).String()
		s.gauge(MetricRunningContainers, float64(snap.Facts.Pods.Containers[name]), name)
	}
}

func (s sink) runtime(snap *health.Snapshot) {
	for _, op := range []string{cri.OpListPodSandbox, cri.OpListContainers} {
		if call, ok := snap.Facts.Calls[op]; ok && call.Answered() {
			s.gauge(MetricResponseBytes, float64(call.Bytes), op)
		}
	}
	s.gauge(MetricResponseLimit, responseLimit)
	status := &snap.Facts.Status
	s.gauge(MetricRuntimeStatusLastSeen, unixSeconds(health.Wall(snap.At, status.LastGood)))
	if status.RuntimeReady != nil {
		s.flag(MetricRuntimeCondition, status.RuntimeReady.Status, "RuntimeReady")
	}
	if status.NetworkReady != nil {
		s.flag(MetricRuntimeCondition, status.NetworkReady.Status, "NetworkReady")
	}
}

func (s sink) events(e *health.Events) {
	if e == nil {
		return
	}
	s.flag(MetricEventedInUse, e.Used())
	s.counter(MetricEventedErrors, e.Errors)
	s.counter(MetricEventedSuccess, e.Opened)
	for kind := range cri.NumEventTypes {
		name := cri.EventType(kind).String()
		s.counter(MetricEventedEvents, e.Received[name], name)
	}
}

func (s sink) evidence(e *health.Evidence) {
	if q := e.Queue; q != nil && q.Listening {
		s.gauge(MetricQueueLength, float64(q.Length))
		s.gauge(MetricQueueLimit, float64(q.Limit))
	}
	if p := e.Process; p != nil && p.Alive {
		if p.OpenFDs >= 0 {
			s.gauge(MetricProcessOpenFDs, float64(p.OpenFDs))
		}
		if p.MaxFDs >= 0 {
			s.gauge(MetricProcessMaxFDs, float64(p.MaxFDs))
		}
		if !p.Start.IsZero() {
			s.gauge(MetricProcessStart, unixSeconds(p.Start))
		}
	}
	for name, source := range e.Sources {
		s.flag(MetricEvidenceUp, source.Up, name)
	}
	if k := e.Kubelet; k != nil {
		s.flag(MetricKubeletUp, k.OK)
		if !k.LastSeen.IsZero() {
			s.gauge(MetricKubeletLastSeen, unixSeconds(k.LastSeen))
		}
	}
}

// maxLabel is the maximum length of a label's value in bytes.
const maxLabel = 128

// label makes text from the runtime or the node valid as a label's value.
func label(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel], "")
	}
	return s
}

// unixSeconds returns t as Unix time in seconds; 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
