// Package soak is an ordinary day of a node in half an hour: pods come and go, containers crash in a loop, images are
// imported, a hundred pods are started at once, containerd is restarted gracefully, the cores are kept busy. plegd
// must never be unhealthy; whenever it is degraded, that must lie within 3 s of an action and carry one of the
// reasons that the action allows.
//
//	make soak [DURATION=30m]
//
// It needs what test/e2e needs. From 3m on every action is made at least once.
package soak
