// Package events holds the subscription to the runtime's event stream, without
// harm to the runtime's other subscribers: it subscribes by lease, so that the
// runtime itself ends every stream soon, whatever becomes of plegd; it drops the
// copies that overlapping leases bring; and it leaves alone a runtime on which
// even that takes events from the kubelet.
//
// What an event means is the relist loop's. Nothing here keeps an event for
// longer than a lease, and nothing here may wait while a stream is to be read.
package events
