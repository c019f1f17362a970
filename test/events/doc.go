// Package events tests the subscription to the runtime's events on real containerds: 2.4.2,
// which has an event stream for each subscriber; 1.7, whose subscribers share one; and 1.6,
// which has none. A second subscriber receives what the runtime sends.
//
//	make e2e-events [FREEZE=1m]
//
// It needs what test/e2e needs, and test/lab/containerd.sh for the other versions.
// PLEGD_EVENTS_FREEZE is how long a subscriber is stopped; 20s.
package events
