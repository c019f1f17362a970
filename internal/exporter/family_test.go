package exporter

import (
	"slices"
	"strings"
	"testing"
)

// TestFamilySeries: a scrape has the series that were set for it, sorted, whatever
// the ones before had.
func TestFamilySeries(t *testing.T) {
	var fs families
	f := fs.gauge("m", "Help.", "b", "a")
	for _, set := range [][]string{
		{"2 x", "1 x"},
		{"2 x", "1 x"},
		{"2 x", "3 x", "1 x"},
		{"3 x", "1 x"},
		{"3 y"},
		{},
		{"3 y", "3 x"},
	} {
		var want []string
		for i, key := range set {
			b, a, _ := strings.Cut(key, " ")
			f.set(float64(i), b, a)
			want = append(want, a+" "+b)
		}
		var got []string
		for _, m := range f.finish().GetMetric() {
			labels := m.GetLabel()
			if len(labels) != 2 || labels[0].GetName() != "a" || labels[1].GetName() != "b" {
				t.Fatalf("labels %v, want a and b", labels)
			}
			a, b := labels[0].GetValue(), labels[1].GetValue()
			got = append(got, a+" "+b)
			if v := m.GetGauge().GetValue(); int(v) != slices.Index(set, b+" "+a) {
				t.Errorf("%v: %s %s is %v", set, a, b, v)
			}
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", set, got, want)
		}
	}
}
