package health

import (
	"fmt"
	"time"
)

// PauseKind says what was paused together with plegd.
type PauseKind string

// The kinds of a pause.
const (
	// PauseSuspend is a suspended machine: CLOCK_MONOTONIC, and with it every
	// age, was paused.
	PauseSuspend PauseKind = "suspend"
	// PauseMachine is a machine on which nothing ran while CLOCK_MONOTONIC went
	// on: a virtual machine that was stopped. Ages do not count it.
	PauseMachine PauseKind = "machine"
	// PauseRuntime is plegd and the runtime stopped together while other
	// processes ran. Ages count it: a kubelet that ran has counted it too.
	PauseRuntime PauseKind = "runtime"
)

// Pause is the last time that plegd and more of the node was paused.
type Pause struct {
	Kind     PauseKind     `json:"kind"`
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"duration_seconds"`
}

const (
	// PausedFor is the shortest time without a judgement that counts as a pause of
	// plegd.
	PausedFor = 2 * time.Second
	// RuntimePausedFor is the shortest pause of plegd of which the runtime's CPU
	// time says whether the runtime was paused as well.
	RuntimePausedFor = 5 * time.Second
)

// pauseRecent is how long a pause is reported after it ended.
const pauseRecent = 5 * time.Minute

// pauseReason speaks of a machine that was paused.
var pauseReason = Reason{
	ID: NodePaused, Severity: SeverityInfo,
	Meaning: "The machine was paused: a virtual machine that was stopped or migrated, or a suspended node. The state of the node does not suffer from it.",
	Needs:   "the difference between CLOCK_BOOTTIME and CLOCK_MONOTONIC grew (suspend); or plegd was not run for a time in which the kernel made almost no context switch (a stopped virtual machine), or in which the runtime used no CPU time (both were stopped).",
	Thresholds: []Threshold{
		{"a pause of %s or more", PausedFor},
		{"of %s or more where only plegd and the runtime were stopped", RuntimePausedFor},
		{"within the last %s", pauseRecent},
	},
	Next: "Look in the hypervisor's or the cloud's log for what paused the machine: a migration, a snapshot, suspend.",
	Steps: []string{
		"`journalctl -k -b | grep -i -e suspend -e 'clocksource'`: a suspend is logged, a stopped virtual machine is not.",
		"Pods were paused as well: leases, leader elections and connections may have run out meanwhile.",
	},
	Restart: HelpsNo,
	match: func(w *view) []string {
		p := w.f.Pause
		if p == nil || w.age(p.Ended) > pauseRecent {
			return nil
		}
		length, ago := short(p.Duration), short(w.age(p.Ended))
		switch p.Kind {
		case PauseSuspend:
			return []string{fmt.Sprintf("the machine was suspended for %s, until %s ago", length, ago)}
		case PauseMachine:
			return []string{fmt.Sprintf("the machine was paused for %s, until %s ago: the kernel made almost no context switch; ages do not count it", length, ago)}
		default:
			return []string{fmt.Sprintf("plegd was paused for %s, until %s ago, and the runtime used no CPU time meanwhile; other processes ran", length, ago)}
		}
	},
}
