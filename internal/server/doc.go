// Package server serves plegd over HTTP: on TCP, and on the control socket that
// only its owner can open. It holds the control socket's client as well.
//
// A handler reads what a Source has published and nothing else: it never calls
// the runtime, never waits for a relist and takes no lock that the relist loop
// waits for. No request changes anything.
package server
