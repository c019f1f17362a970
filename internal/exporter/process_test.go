package exporter

import (
	"math"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// TestProcessCollector: what plegd tells of itself is what every client of
// Prometheus tells, by the same names and with the same help.
func TestProcessCollector(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc: ", err)
	}
	own, theirs := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	own.MustRegister(newProcessCollector())
	theirs.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	got, want := gather(t, own), gather(t, theirs)
	for name, w := range want {
		if name == "process_network_receive_bytes_total" || name == "process_network_transmit_bytes_total" {
			continue // the node's
		}
		g := got[name]
		if g == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		if g.GetHelp() != w.GetHelp() || g.GetType() != w.GetType() {
			t.Errorf("%s: %s %q, want %s %q", name, g.GetType(), g.GetHelp(), w.GetType(), w.GetHelp())
		}
		// Gathered a moment apart: hardly different.
		a, b := only(g), only(w)
		if diff := math.Abs(a - b); diff > 0.25*math.Abs(b)+1 {
			t.Errorf("%s is %g, want about %g", name, a, b)
		}
	}
}

func only(f *dto.MetricFamily) float64 {
	m := f.GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}
