//go:build e2e

package lab

import (
	"fmt"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics is one scrape.
type Metrics struct {
	families map[string]*dto.MetricFamily
}

// MustMetrics scrapes /metrics, or ends the test.
func (p *Plegd) MustMetrics() Metrics {
	p.t.Helper()
	code, body, err := p.Get("/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("/metrics: %d %s", code, body)
	}
	Must(p.t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	Must(p.t, err)
	return Metrics{families: families}
}

// Value returns the value of a counter or gauge with these labels, given as
// name, value, name, value; ok is false where there is none.
func (m Metrics) Value(name string, labels ...string) (value float64, ok bool) {
	for _, metric := range m.families[name].GetMetric() {
		if !hasLabels(metric, labels) {
			continue
		}
		if metric.GetCounter() != nil {
			return metric.GetCounter().GetValue(), true
		}
		return metric.GetGauge().GetValue(), metric.GetGauge() != nil
	}
	return 0, false
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range metric.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
