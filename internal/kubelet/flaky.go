package kubelet

import "time"

// opStatus is the operation of a Status call, as the kubelet's metrics name it.
const opStatus = "status"

const (
	// flakyGap is the longest time between two failures of Status that belong together: three calls.
	flakyGap = 3 * StatusPeriod
	// flakyAfter is how long Status must fail again and again until that counts.
	flakyAfter = 4 * StatusPeriod
)

// flakiness follows a Status that fails again and again between good answers. A kubelet whose calls alternate with
// plegd's may have had none of the good ones.
type flakiness struct {
	first, last time.Time // failures
	good        time.Time // the last good answer that a failure came after
}

// follow notes the last failure and the last good answer of Status.
func (f *flakiness) follow(failed, good time.Time) {
	if !failed.After(f.last) {
		return
	}
	if failed.Sub(f.last) > flakyGap {
		f.first = failed
	}
	f.last = failed
	f.good = good
}

// start returns since when Status fails again and again, zero while it does not.
func (f *flakiness) start(t time.Time) time.Time {
	answeredBetween := f.good.After(f.first)
	if !answeredBetween || t.Sub(f.last) > flakyGap || f.last.Sub(f.first) < flakyAfter {
		return time.Time{}
	}
	return f.first
}
