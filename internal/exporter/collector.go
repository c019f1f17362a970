package exporter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// Source has the newest snapshot.
type Source interface {
	// Snapshot returns it with its ages as of a moment.
	Snapshot(moment time.Time) facts.Snapshot
}

// Collector computes the gauges that depend on the moment of the scrape, all from
// one snapshot: a relist that never returns shows at the next scrape. A value that
// is not known is absent.
type Collector struct {
	src     Source
	node    Node
	version string
	clock   func() time.Time
}

// NewCollector returns a collector over src. version is plegd's own.
func NewCollector(src Source, node Node, version string) *Collector {
	return &Collector{src: src, node: node, version: version, clock: time.Now}
}

// Describe sends nothing: which metrics there are depends on the node.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of one snapshot.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.src.Snapshot(c.clock())
	out := sink{ch}
	out.verdict(&s)
	out.relist(&s)
	out.runtime(&s)
	out.events(s.Facts.Events)
	out.evidence(&s.Facts.Evidence)
	runtime := &s.Facts.Runtime
	out.gauge(nodeInfo, 1,
		runtime.Name, runtime.Version, c.node.Kernel, c.node.OSImage, c.node.CgroupVersion, c.version)
}

// sink sends metrics.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) send(t prometheus.ValueType, desc *prometheus.Desc, v float64, labels []string) {
	for i := range labels {
		labels[i] = label(labels[i])
	}
	s.ch <- prometheus.MustNewConstMetric(desc, t, v, labels...)
}

func (s sink) gauge(desc *prometheus.Desc, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, desc, v, labels)
}

func (s sink) counter(desc *prometheus.Desc, v uint64, labels ...string) {
	s.send(prometheus.CounterValue, desc, float64(v), labels)
}

func (s sink) flag(desc *prometheus.Desc, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.gauge(desc, n, labels...)
}

func (s sink) verdict(snap *facts.Snapshot) {
	v := &snap.Verdict
	s.gauge(lastSeen, unixSeconds(facts.Wall(snap.At, v.LastSeen)))
	if !v.LastSeen.IsZero() {
		s.gauge(lastSeenAge, v.LastSeenAge.Seconds())
	}
	if v.NotReadyIn != nil {
		s.gauge(notReadyIn, v.NotReadyIn.Seconds())
	}
	if v.RulesFailIn != nil {
		s.gauge(rulesFailIn, v.RulesFailIn.Seconds())
	}
	s.flag(healthy, v.PLEGHealthy)
	s.flag(syncLoopAllowed, v.SyncLoopAllowed)
	s.flag(nodeReadyPredicted, v.NodeReady)
	s.gauge(threshold, v.Threshold.Seconds())
	s.gauge(relistPeriod, snap.Facts.Config.RelistPeriod.Seconds())
	for _, state := range facts.States() {
		s.flag(verdictState, v.State == state, string(state))
	}
	if !v.Since.IsZero() {
		s.gauge(verdictLastChange, unixSeconds(facts.Wall(snap.At, v.Since)))
	}
	for i := range v.Active {
		if a := &v.Active[i]; health.Known(a.ID) { // other hosts read it: no text but the table's
			s.gauge(reason, 1, a.ID, string(a.Severity))
		}
	}
	s.primaryReason(v)
	if v.Culprit != nil {
		s.gauge(culprit, 1, string(v.Culprit.Kind), v.Culprit.ID())
	}
}

// primaryReason sends the primary reason, and what an alert says about it: the lines of the
// reason's page, and the kind of the culprit. No name of the node is in them.
func (s sink) primaryReason(v *facts.Verdict) {
	if v.Reason == "" {
		return
	}
	s.gauge(primaryReason, 1, v.Reason)
	kind := ""
	if v.Culprit != nil {
		kind = string(v.Culprit.Kind)
	}
	if r, ok := health.Lookup(v.Reason); ok {
		s.gauge(primaryReasonInfo, 1, r.ID, r.Cause, r.NextLine, kind)
	}
}

func (s sink) relist(snap *facts.Snapshot) {
	for _, phase := range facts.Phases() {
		var age time.Duration
		if f := snap.Facts.Relist.InFlight; f != nil && f.Phase == phase {
			age = snap.Age(f.PhaseStart)
		}
		s.gauge(relistInFlight, age.Seconds(), string(phase))
	}
	if snap.Facts.Pods == nil {
		return
	}
	s.gauge(runningPods, float64(snap.Facts.Pods.Running))
	for state := range cri.NumStates {
		name := cri.State(state).String()
		s.gauge(runningContainers, float64(snap.Facts.Pods.Containers[name]), name)
	}
}

func (s sink) runtime(snap *facts.Snapshot) {
	for _, op := range []string{cri.OpListPodSandbox, cri.OpListContainers} {
		if call, ok := snap.Facts.Calls[op]; ok && call.Answered() {
			s.gauge(responseBytes, float64(call.Bytes), op)
		}
	}
	s.gauge(responseLimit, 16<<20) // of the kubelet's client (pkg/kubelet/cri/remote/utils: maxMsgSize)
	status := &snap.Facts.Status
	s.gauge(statusLastSeen, unixSeconds(facts.Wall(snap.At, status.LastGood)))
	if status.RuntimeReady != nil {
		s.flag(runtimeCondition, status.RuntimeReady.Status, "RuntimeReady")
	}
	if status.NetworkReady != nil {
		s.flag(runtimeCondition, status.NetworkReady.Status, "NetworkReady")
	}
}

func (s sink) events(e *facts.Events) {
	if e == nil {
		return
	}
	s.flag(eventedInUse, e.Used())
	s.counter(eventedErrors, e.Errors)
	s.counter(eventedSuccess, e.Opened)
	for kind := range cri.NumEventTypes {
		name := cri.EventType(kind).String()
		s.counter(eventedEvents, e.Received[name], name)
	}
}

func (s sink) evidence(e *facts.Evidence) {
	if q := e.Queue; q != nil && q.Listening {
		s.gauge(queueLength, float64(q.Length))
		s.gauge(queueLimit, float64(q.Limit))
	}
	s.process(e.Process)
	for name, source := range e.Sources {
		s.flag(evidenceUp, source.Up, name)
		for part := range source.Unread {
			s.flag(evidenceUp, false, name+"/"+strings.ReplaceAll(part, " ", "_"))
		}
	}
	if k := e.Kubelet; k != nil {
		s.flag(kubeletUp, k.OK)
		if !k.LastSeen.IsZero() {
			s.gauge(kubeletLastSeen, unixSeconds(k.LastSeen))
		}
	}
}

func (s sink) process(p *facts.Process) {
	if p == nil || !p.Alive {
		return
	}
	if p.OpenFDs >= 0 {
		s.gauge(processOpenFDs, float64(p.OpenFDs))
	}
	if p.MaxFDs >= 0 {
		s.gauge(processMaxFDs, float64(p.MaxFDs))
	}
	if !p.Start.IsZero() {
		s.gauge(processStart, unixSeconds(p.Start))
	}
}

// maxLabel is the maximum length of a label's value in bytes.
const maxLabel = 128

// label makes text from the runtime or the node fit for a label's value: nothing in it commands a
// terminal, or hides or turns text.
func label(s string) string { return plain.CutTo(plain.Text(s), maxLabel) }

// unixSeconds returns t as Unix time in seconds; 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
