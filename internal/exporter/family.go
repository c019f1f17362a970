package exporter

import (
	"cmp"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// family is a metric whose series are set at each scrape. They stay from one scrape
// to the next, which sets their numbers: to make, check and sort them again was more
// than a quarter of a scrape.
type family struct {
	out    *dto.MetricFamily
	labels []string
	// series are those that were set, in that order: until next in this scrape, from
	// there on in the one before.
	series  []series
	next    int
	changed bool
}

type series struct {
	values []string // of the labels
	metric *dto.Metric
	value  *float64 // in metric
}

// families are those of a collector.
type families []*family

func (fs *families) gauge(name, help string, labels ...string) *family {
	return fs.add(dto.MetricType_GAUGE, name, help, labels)
}

// counter returns one that somebody else counts.
func (fs *families) counter(name, help string, labels ...string) *family {
	return fs.add(dto.MetricType_COUNTER, name, help, labels)
}

func (fs *families) add(t dto.MetricType, name, help string, labels []string) *family {
	f := &family{out: &dto.MetricFamily{Name: &name, Help: &help, Type: &t}, labels: labels}
	*fs = append(*fs, f)
	return f
}

// set sets a series, which is one of this scrape.
func (f *family) set(v float64, values ...string) {
	if f.next == len(f.series) || !slices.Equal(f.series[f.next].values, values) {
		f.series = append(f.series[:f.next], f.newSeries(values))
		f.changed = true
	}
	*f.series[f.next].value = v
	f.next++
}

func (f *family) setBool(v bool, values ...string) {
	if v {
		f.set(1, values...)
		return
	}
	f.set(0, values...)
}

func (f *family) newSeries(values []string) series {
	s := series{values: slices.Clone(values), metric: new(dto.Metric), value: new(float64)}
	for i, name := range f.labels {
		s.metric.Label = append(s.metric.Label, &dto.LabelPair{Name: &name, Value: &s.values[i]})
	}
	slices.SortFunc(s.metric.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	if f.out.GetType() == dto.MetricType_COUNTER {
		s.metric.Counter = &dto.Counter{Value: s.value}
	} else {
		s.metric.Gauge = &dto.Gauge{Value: s.value}
	}
	return s
}

// finish ends a scrape: a series that was not set is gone.
func (f *family) finish() *dto.MetricFamily {
	if f.changed || f.next < len(f.series) {
		f.series = f.series[:f.next]
		f.out.Metric = f.out.Metric[:0]
		for _, s := range f.series {
			f.out.Metric = append(f.out.Metric, s.metric)
		}
		slices.SortFunc(f.out.Metric, func(a, b *dto.Metric) int {
			return slices.CompareFunc(a.GetLabel(), b.GetLabel(), func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetValue(), b.GetValue()) })
		})
	}
	f.next, f.changed = 0, false
	return f.out
}
