package daemon

import (
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
)

const (
	// wakesWithin is how long it may take after a pause until the runtime has
	// been asked again, and it is known what else was paused.
	wakesWithin = 3 * time.Second
	// keptPauses bounds the pauses of the machine that ages do not count.
	keptPauses = 32
	// leastSwitches is how many context switches the kernel must usually make in
	// a pause for their absence to prove that nothing ran.
	leastSwitches = 200
	// idleRuntime is the CPU time that a runtime uses at most until it is looked
	// at again after a pause: of the pause a share, and at least a time.
	idleRuntimeShare = 0.002
	idleRuntimeLeast = 50 * time.Millisecond
)

// pauses notices that plegd was paused and finds out what was paused with it.
//
// The clock alone cannot tell a stopped virtual machine from a plegd that was
// stopped by a signal: in both, CLOCK_MONOTONIC continues (in a suspended machine
// only CLOCK_BOOTTIME does). The kernel's context switches can: a machine that
// runs makes hundreds a second, one that is stopped makes none. So ages leave out
// the pause of a machine only. Where plegd alone was stopped, the kubelet has
// counted the time, and plegd counts it too; its verdict is held back until it
// has asked the runtime again.
type pauses struct {
	suspended func() time.Duration      // CLOCK_BOOTTIME - CLOCK_MONOTONIC
	activity  func() *evidence.Activity // the newest sample, nil for none

	looked time.Time     // the last judgement, or look whether there is anything to judge
	every  time.Duration // until the next was expected
	asleep time.Duration
	before *evidence.Activity // the newest sample at the last judgement
	pid    int                // the runtime's process then

	woke     time.Time // zero when the verdict is not held back
	gap      time.Duration
	expected time.Duration // without a pause
	proving  bool          // what was paused is not known yet
	start    snapshot

	machine []health.Pause // those that ages do not count, oldest first
	last    *health.Pause
}

// snapshot is what was known before a pause.
type snapshot struct {
	activity *evidence.Activity
	pid      int
}

// expect notes when the next look is expected, and returns that.
func (p *pauses) expect(d time.Duration) time.Duration {
	p.every = d
	return d
}

// idle takes the place of look where there is nothing to judge: false when there
// was a pause.
func (p *pauses) idle(now time.Time) bool {
	asleep := p.suspended()
	if now.Sub(p.looked) >= health.PausedFor || asleep-p.asleep >= health.PausedFor {
		return false
	}
	p.looked, p.asleep, p.before = now, asleep, p.activity()
	return true
}

func newPauses(activity func() *evidence.Activity) *pauses {
	return &pauses{activity: activity, suspended: suspendedTime, every: judgeEvery}
}

// suspendedTime is how long the machine has been suspended since boot.
func suspendedTime() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0 // never on a kernel that Go runs on
	}
	return time.Duration(boot.Nano() - mono.Nano())
}

// look notices a pause that has ended since the last judgement, and returns the
// facts without the pauses of the machine in their ages.
func (p *pauses) look(now time.Time, f *health.Facts) health.Facts {
	asleep, activity := p.suspended(), p.activity()
	if !p.looked.IsZero() {
		if slept := asleep - p.asleep; slept >= health.PausedFor {
			p.last = &health.Pause{Kind: health.PauseSuspend, Ended: now, Duration: slept}
		}
		if gap := now.Sub(p.looked); gap >= health.PausedFor {
			p.woke, p.gap, p.expected, p.proving = now, gap, p.every, true
			p.start = snapshot{activity: p.before, pid: p.pid}
		}
	}
	if p.proving {
		p.prove(now, f, activity)
	}
	p.looked, p.asleep, p.before = now, asleep, activity
	if process := f.Evidence.Process; process != nil && !p.proving {
		p.pid = process.PID
	}
	out := *f
	if len(p.machine) > 0 {
		out = moveTimes(out, p.withoutPauses)
	}
	out.Pause = p.last
	return out
}

// prove finds out what was paused with plegd, as soon as the first samples after
// the pause are there.
func (p *pauses) prove(now time.Time, f *health.Facts, a *evidence.Activity) {
	if now.Sub(p.woke) >= wakesWithin {
		p.proving = false
		return
	}
	middle := p.woke.Add(-p.gap / 2)
	if a == nil || !a.At.After(middle) {
		return
	}
	pause := health.Pause{Ended: p.woke, Duration: p.gap - p.expected}
	if machinePaused(p.start.activity, a, p.gap) {
		pause.Kind = health.PauseMachine
		p.machine = append(p.machine, pause)
		p.machine = p.machine[max(0, len(p.machine)-keptPauses):]
		p.last, p.proving = &pause, false
		return
	}
	process := f.Evidence.Process
	if process == nil || !process.At.After(middle) {
		return
	}
	p.proving = false
	if p.gap >= health.RuntimePausedFor && process.Alive && process.PID == p.start.pid && usedBy(process, p.gap) <= max(idleRuntimeLeast, time.Duration(idleRuntimeShare*float64(p.gap))) {
		pause.Kind = health.PauseRuntime
		p.last = &pause
	}
}

// usedBy is about how much CPU time the process has used since it was looked at
// before a pause.
func usedBy(p *health.Process, gap time.Duration) time.Duration {
	return time.Duration(p.CPU * float64(gap))
}

// machinePaused reports whether the kernel made less than half of the context
// switches that it usually makes in a gap between two samples.
func machinePaused(before, after *evidence.Activity, gap time.Duration) bool {
	if before == nil || before.Rate <= 0 || after.Switches < before.Switches {
		return false
	}
	usual := before.Rate * gap.Seconds()
	outside := before.Rate * max(0, after.At.Sub(before.At)-gap).Seconds()
	return usual >= leastSwitches && float64(after.Switches-before.Switches) < outside+usual/2
}

// withoutPauses returns the time that is as long ago as t would be if the machine
// had not been paused.
func (p *pauses) withoutPauses(t time.Time) time.Time {
	for i := len(p.machine) - 1; i >= 0; i-- {
		m := &p.machine[i]
		if !t.Before(m.Ended) {
			continue
		}
		if t = t.Add(m.Duration); t.After(m.Ended) {
			t = m.Ended
		}
	}
	return t
}

// waking reports whether the runtime has yet to be asked again after a pause.
func (p *pauses) waking() bool { return !p.woke.IsZero() }

// judged returns the verdict that counts: v, or the one before it as long as
// nothing has been learnt since a pause.
func (p *pauses) judged(now time.Time, f *health.Facts, v, previous *health.Verdict) *health.Verdict {
	if p.woke.IsZero() || previous == nil {
		return v
	}
	if now.Sub(p.woke) >= wakesWithin || p.askedAgain(f) && !p.proving {
		p.woke = time.Time{}
		return v
	}
	return previous
}

// askedAgain reports whether the runtime has been asked since the pause. Calls
// that were under way in the pause do not count: their time limits went on.
func (p *pauses) askedAgain(f *health.Facts) bool {
	relist := f.Relist.Last != nil && f.Relist.Last.Start.After(p.woke)
	status := f.Status.LastGood.After(p.woke) || f.Status.LastErr != nil && f.Calls[opStatus].LastFailed.After(p.woke)
	probe := f.Probe.FailedSince.IsZero() || f.Probe.At.After(p.woke)
	return relist && status && probe
}

// opStatus is Status, as the facts name it.
const opStatus = "status"

// moveTimes returns a copy of x in which every time that is set is moved.
func moveTimes[T any](x T, move func(time.Time) time.Time) T {
	return moveValue(reflect.ValueOf(x), move).Interface().(T)
}

func moveValue(v reflect.Value, move func(time.Time) time.Time) reflect.Value {
	if t, ok := v.Interface().(time.Time); ok {
		if !t.IsZero() {
			t = move(t)
		}
		return reflect.ValueOf(t)
	}
	switch v.Kind() {
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			out.Field(i).Set(moveValue(v.Field(i), move))
		}
		return out
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(moveValue(v.Elem(), move))
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(moveValue(v.Index(i), move))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), moveValue(it.Value(), move))
		}
		return out
	default:
		return v
	}
}
