// Package events subscribes to the runtime's event stream without harming its other
// subscribers. It subscribes by lease: each stream has a deadline at which the runtime
// ends it, even if plegd hangs. It does not subscribe to a runtime on which even that
// takes events from the kubelet.
//
// It does not interpret events: they are hints for the relist loop.
package events
