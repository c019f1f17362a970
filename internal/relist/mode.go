package relist

import "time"

// Mode is what the runtime's events are used for.
type Mode string

// The modes.
const (
	// Off: they are not listened to.
	Off Mode = "off"
	// Hint: an event asks for an early look at its pod (kubelet 1.37 and later).
	// The loop continues with its period.
	Hint Mode = "hint"
	// Evented: events tell the state of their pods, and relists are far apart
	// (kubelet 1.26 to 1.36, pkg/kubelet/pleg/evented.go).
	Evented Mode = "evented"
)

// Modes lists the modes.
func Modes() []Mode { return []Mode{Off, Hint, Evented} }

// The constants of a kubelet that relies on events (pkg/kubelet/kubelet.go,
// eventedPlegRelistPeriod and eventedPlegRelistThreshold; pkg/kubelet/pleg/evented.go,
// globalCacheUpdatePeriod, 5 s in 1.26 to 1.36).
const (
	EventedPeriod    = 300 * time.Second
	EventedThreshold = 10 * time.Minute
	CacheTick        = 5 * time.Second
)
