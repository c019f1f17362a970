// Package events tests the subscription to the runtime's events on real
// containerds: 2.4.2, which has an event stream for each subscriber; 1.7, whose
// subscribers share one; and 1.6, which has none. What the runtime told is known
// from a second subscriber, in a process of its own.
//
//	make e2e-events [FREEZE=1m]
//
// It wants what test/e2e wants, and test/lab/containerd.sh for the other
// versions. The environment may say:
//
//	PLEGD_EVENTS_FREEZE  how long a subscriber is stopped; 20s
package events
