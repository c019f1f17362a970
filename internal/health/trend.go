package health

import (
	"fmt"
	"slices"
	"time"
)

const (
	// trendEvery is the time between two samples of a trend, trendWindow how far
	// back they go.
	trendEvery  = 10 * time.Second
	trendWindow = 10 * time.Minute
	// trendAfter is how long a value must have been followed before anything is
	// said of its trend.
	trendAfter = 5 * time.Minute
	// trendAhead is how far ahead a limit counts.
	trendAhead = time.Hour
	// trendAgrees is Kendall's rank correlation with time from which values count
	// as rising. Noise reaches it once in a million windows, a single step never.
	trendAgrees = 0.6
	// trendOverNoise is how many times its own scatter a value must have risen by
	// in the window.
	trendOverNoise = 3
)

// The quantities that are followed over time.
const (
	TrendDescriptors    = "descriptors"
	TrendListBytes      = "list_bytes"
	TrendAcceptQueue    = "accept_queue"
	TrendInspectSeconds = "inspect_seconds"
	TrendListSeconds    = "list_seconds"
	// trendStorage stands before the directory whose file system it is.
	trendStorage = "storage_bytes "
)

// Trend is a quantity that rises towards its limit and reaches it within an hour
// at the present rate.
type Trend struct {
	// PerMinute is how much it rises in a minute.
	PerMinute float64 `json:"per_minute"`
	// Limit is where it ends, LimitAt when it is there at the present rate.
	Limit   float64   `json:"limit"`
	LimitAt time.Time `json:"limit_at,omitzero"`
}

// Trends follows quantities over time. The zero value follows none yet. It is not
// for several goroutines at once.
type Trends struct {
	series map[string]*series
}

// series are the samples of one quantity, oldest first.
type series struct {
	at    []time.Time
	value []float64
	limit float64
	// found is the trend of these samples, nil for none.
	found *Trend
}

// Observe takes a sample of a quantity and its limit. Samples that come sooner
// than 10 s after the last are left out. When the limit changes, the quantity is
// followed from the start.
func (t *Trends) Observe(name string, now time.Time, value, limit float64) {
	if t.series == nil {
		t.series = map[string]*series{}
	}
	s := t.series[name]
	if s == nil || s.limit != limit {
		s = &series{limit: limit}
		t.series[name] = s
	}
	n := len(s.at)
	if n > 0 && now.Sub(s.at[n-1]) < trendEvery {
		return
	}
	if n > 0 && now.Sub(s.at[n-1]) > 2*trendEvery { // it was not known meanwhile
		s.at, s.value = s.at[:0], s.value[:0]
	}
	s.at, s.value = append(s.at, now), append(s.value, value)
	old := slices.IndexFunc(s.at, func(at time.Time) bool { return now.Sub(at) <= trendWindow })
	s.at, s.value = slices.Delete(s.at, 0, old), slices.Delete(s.value, 0, old)
	s.found = s.trend()
}

// Follow takes a sample of every quantity that the facts hold.
func (t *Trends) Follow(f *Facts, now time.Time) {
	if p := f.Evidence.Process; p != nil && p.Alive && p.OpenFDs >= 0 && p.MaxFDs > 0 {
		t.Observe(TrendDescriptors, now, float64(p.OpenFDs), float64(p.MaxFDs))
	}
	if c := f.Calls[string(PhaseListContainers)]; c.Bytes > 0 {
		t.Observe(TrendListBytes, now, float64(c.Bytes), messageLimit)
	}
	if q := f.Evidence.Queue; q != nil && q.Listening && q.Limit > 0 {
		t.Observe(TrendAcceptQueue, now, float64(q.Length), float64(q.Limit))
	}
	if s := f.Evidence.Storage; s != nil {
		for i := range s.FileSystems {
			if fs := &s.FileSystems[i]; fs.Bytes > 0 {
				t.Observe(fs.trend(), now, float64(fs.Bytes-fs.FreeBytes), float64(fs.Bytes))
			}
		}
	}
	if l := f.Relist.Last; l != nil && l.Err == nil {
		t.Observe(TrendInspectSeconds, now, (l.Serial - l.ListPodSandbox - l.ListContainers).Seconds(), SlowRelistThreshold.Seconds())
		t.Observe(TrendListSeconds, now, (l.ListPodSandbox + l.ListContainers).Seconds(), SlowListThreshold.Seconds())
	}
}

// At returns the quantities that reach their limits within an hour at the present
// rate, nil for none.
func (t *Trends) At(now time.Time) (out map[string]Trend) {
	for name, s := range t.series {
		if s.found == nil || now.Sub(s.at[len(s.at)-1]) > 2*trendEvery {
			continue
		}
		if out == nil {
			out = map[string]Trend{}
		}
		out[name] = *s.found
	}
	return out
}

// trend returns the trend of the samples, nil for none. It estimates the slope as the median of the slopes between all pairs of
// samples (Theil and Sen), which single outliers and one step do not move.
func (s *series) trend() *Trend {
	n := len(s.at)
	if n == 0 || s.at[n-1].Sub(s.at[0]) < trendAfter {
		return nil
	}
	slopes := make([]float64, 0, n*(n-1)/2)
	rising, falling := 0, 0
	for i := range n {
		for j := i + 1; j < n; j++ {
			slope := (s.value[j] - s.value[i]) / s.at[j].Sub(s.at[i]).Seconds()
			slopes = append(slopes, slope)
			switch {
			case slope > 0:
				rising++
			case slope < 0:
				falling++
			}
		}
	}
	perSecond := median(slopes)
	if perSecond <= 0 || float64(rising-falling) < trendAgrees*float64(len(slopes)) {
		return nil
	}
	last := s.fit(perSecond)
	if rise := perSecond * s.at[n-1].Sub(s.at[0]).Seconds(); rise < trendOverNoise*s.scatter(perSecond) || last >= s.limit {
		return nil
	}
	left := (s.limit - last) / perSecond
	if left > trendAhead.Seconds() {
		return nil
	}
	return &Trend{PerMinute: 60 * perSecond, Limit: s.limit, LimitAt: s.at[n-1].Add(time.Duration(left * float64(time.Second)))}
}

// fit is the line's value at the last sample.
func (s *series) fit(perSecond float64) float64 {
	n := len(s.at)
	levels := make([]float64, n)
	for i := range n {
		levels[i] = s.value[i] + perSecond*s.at[n-1].Sub(s.at[i]).Seconds()
	}
	return median(levels)
}

// scatter is the median distance of the samples from the line.
func (s *series) scatter(perSecond float64) float64 {
	n, last := len(s.at), s.fit(perSecond)
	distances := make([]float64, n)
	for i := range n {
		d := s.value[i] + perSecond*s.at[n-1].Sub(s.at[i]).Seconds() - last
		distances[i] = max(d, -d)
	}
	return median(distances)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// trendThreshold is the threshold of reasons that follow a trend.
var trendThreshold = Threshold{"or at that limit within %s at the present rate", trendAhead}

// trendEvidence says when a quantity reaches its limit, nil where nothing points
// that way. what is the quantity with its unit, as in "descriptors".
func (w *view) trendEvidence(name, what string) []string {
	t, ok := w.f.Trends[name]
	if !ok || !t.LimitAt.After(w.now) {
		return nil
	}
	return []string{fmt.Sprintf("rises by %.3g %s a minute: at its limit in about %s at the present rate", t.PerMinute, what, about(t.LimitAt.Sub(w.now)))}
}

// about prints a duration without false precision.
func about(d time.Duration) string {
	if d < 2*time.Minute {
		return d.Round(10 * time.Second).String()
	}
	return fmt.Sprintf("%d min", int(d.Round(time.Minute)/time.Minute))
}
