package relist

import "time"

// Observer is told what the loop does, from the loop's own goroutines. Its
// methods must not block.
type Observer interface {
	// RelistDone is told of every relist that ended: its duration, failed ones
	// too, and the time its calls took one after another.
	RelistDone(duration, serial time.Duration, ok bool)
	// RelistInterval is told, at the start of a relist, the time since the
	// start of the last successful one.
	RelistInterval(time.Duration)
	// EventGenerated is told of every event before its delivery.
	EventGenerated(EventType)
	// EventDiscarded is told of every event dropped because the channel was full.
	EventDiscarded()
	// InspectionDone is told of every inspection of a pod that ended.
	InspectionDone(ok bool)
}
