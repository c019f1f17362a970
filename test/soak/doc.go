// Package soak is an ordinary day of a node in half an hour: pods come and go,
// containers crash in a loop, images are imported, a hundred pods are started at
// once, containerd is restarted gracefully, the cores are kept busy. plegd must
// never say unhealthy; and whenever it says degraded, that must lie within 3 s
// of a logged action and carry a reason from the set that stands beside that
// action in actions_test.go.
//
//	make soak [DURATION=30m]
//
// It wants what test/e2e wants. The environment may say DURATION, 30m where it
// does not; from 3m on every action is made at least once.
package soak
