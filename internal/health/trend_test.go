package health

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// follow feeds a function of the seconds since the start into a trend, and returns when it was first said to reach its limit, -1 for never,
// and the last word.
func follow(d time.Duration, limit float64, value func(s float64) float64) (first time.Duration, last Trend) {
	var t Trends
	start := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	first = -1
	for s := time.Duration(0); s <= d; s += trendEvery {
		now := start.Add(s)
		t.Observe(TrendDescriptors, now, value(s.Seconds()), limit)
		trend, ok := t.At(now)[TrendDescriptors]
		if ok && first < 0 {
			first = s
		}
		last = trend
	}
	return first, last
}

// TestSlowLeak: a leak is seen after five minutes, and the time of its limit is
// right within a tenth, with noise on it.
func TestSlowLeak(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const limit = 1024
	leak := func(s float64) float64 { return math.Round(300 + s/3 + 10*random.NormFloat64()) } // 20 a minute
	first, last := follow(15*time.Minute, limit, leak)
	if first != trendAfter {
		t.Errorf("seen after %s, want %s", first, trendAfter)
	}
	now := time.Date(2026, 11, 22, 0, 15, 0, 0, time.UTC)
	want := time.Duration((limit - 300 - 300) * 3 * float64(time.Second))
	if got := last.LimitAt.Sub(now); (got-want).Abs() > want/10 || math.Abs(last.PerMinute-20) > 2 {
		t.Errorf("at its limit in %s by %.1f a minute, want %s by 20", got, last.PerMinute, want)
	}
}

// TestNoTrend: what rises to no limit raises no alarm, for six hours.
func TestNoTrend(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, value := range map[string]func(float64) float64{
		"constant":              func(float64) float64 { return 900 },
		"noise near the limit":  func(float64) float64 { return 900 + 40*random.NormFloat64() },
		"one step":              func(s float64) float64 { return 300 + 600*math.Min(1, math.Max(0, math.Floor(s/3600))) },
		"a step every hour":     func(s float64) float64 { return 300 + 600*float64(int(s/3600)%2) },
		"bursts of five min":    func(s float64) float64 { return 500 + 400*math.Max(0, math.Sin(2*math.Pi*s/300)) },
		"falls":                 func(s float64) float64 { return 1000 - s/200 },
		"rises too slowly":      func(s float64) float64 { return 100 + s/200 },
		"sparse random spikes":  func(float64) float64 { return 300 + 700*math.Floor(random.Float64()+.02) },
		"a random walk at rest": func(s float64) float64 { return 500 + 50*math.Sin(s/40) + 30*random.NormFloat64() },
	} {
		t.Run(name, func(t *testing.T) {
			if first, last := follow(6*time.Hour, 1024, value); first >= 0 {
				t.Errorf("said after %s: %+v", first, last)
			}
		})
	}
}

// TestTrendStartsAgain: another limit, and a time in which nothing was known, start
// it again.
func TestTrendStartsAgain(t *testing.T) {
	var tr Trends
	now := time.Now()
	observe := func(n int, limit float64) bool {
		for range n {
			now = now.Add(trendEvery)
			tr.Observe(TrendListBytes, now, float64(now.Unix()%100_000), limit)
		}
		_, ok := tr.At(now)[TrendListBytes]
		return ok
	}
	observe(40, 150_000)
	if observe(10, 160_000) {
		t.Error("a trend right after the limit changed")
	}
	now = now.Add(5 * time.Minute)
	if observe(10, 160_000) {
		t.Error("a trend right after a gap")
	}
}

// TestTrendEvidence: the reason says when.
func TestTrendEvidence(t *testing.T) {
	now := time.Now()
	w := newView(&Facts{Trends: map[string]Trend{TrendDescriptors: {PerMinute: 20.4, Limit: 1024, LimitAt: now.Add(12*time.Minute + 9*time.Second)}}}, now, nil)
	got := strings.Join(w.trendEvidence(TrendDescriptors, "descriptors"), "")
	if !strings.Contains(got, "20.4 descriptors a minute") || !strings.Contains(got, "in about 12 min at the present rate") {
		t.Error(got)
	}
	if got := w.trendEvidence(TrendListBytes, "bytes"); got != nil {
		t.Error(got)
	}
}

// TestLeakIsNamed: descriptors that leak are FDsRunningOut long before they are
// near their limit, and say when they reach it; healthy facts without a trend are
// not.
func TestLeakIsNamed(t *testing.T) {
	start := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	ready := &Condition{Status: true}
	var trends Trends
	var v *Verdict
	for s := time.Duration(0); s <= 6*time.Minute; s += trendEvery {
		now := start.Add(s)
		f := &Facts{
			Config:   Config{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, RPCTimeout: 2 * time.Minute},
			Started:  start.Add(-time.Hour),
			Endpoint: Endpoint{Path: "/run/containerd/containerd.sock"},
			Relist:   Relist{Attempts: 1, LastSeen: now, Last: &RelistResult{Start: now, End: now}},
			Modelled: Modelled{LastSeen: now},
			Status:   Status{Answered: true, LastGood: now, RuntimeReady: ready, NetworkReady: ready},
			Evidence: Evidence{Process: &Process{At: now, PID: 7, Alive: true, OpenFDs: 200 + int(s.Seconds()/2), MaxFDs: 1024}},
		}
		trends.Follow(f, now)
		f.Trends = trends.At(now)
		v = Judge(f, now, v)
		if want := s >= trendAfter; (v.Reason == FDsRunningOut) != want {
			t.Fatalf("after %s: %s %q", s, v.State, v.Reason)
		}
	}
	if got := strings.Join(v.Active[0].Evidence, "; "); !strings.Contains(got, "fds 380 of 1024") || !strings.Contains(got, "in about 21 min") {
		t.Error(got)
	}
}

// TestSlowerListsAreNoShim: lists that take longer and longer are RelistSlow.
func TestSlowerListsAreNoShim(t *testing.T) {
	f := healthyFacts(t0)
	f.Evidence.Children = &Children{At: t0, Shims: 5}
	for _, name := range []string{TrendListSeconds, TrendInspectSeconds} {
		f.Trends = map[string]Trend{name: {PerMinute: 0.157, LimitAt: t0.Add(4 * time.Minute)}}
		if v := Judge(&f, t0, nil); v.Reason != RelistSlow || len(v.Active) != 1 {
			t.Errorf("%s: %q, want %s alone: %+v", name, v.Reason, RelistSlow, v.Active)
		}
	}
}
