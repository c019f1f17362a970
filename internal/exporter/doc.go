// Package exporter shows what plegd knows: as Prometheus metrics, as JSON, as a
// page for a browser and as text for a terminal. It serves them over TCP and
// over the control socket, and holds the control socket's client.
//
// It may ask a Source for a snapshot and nothing else: it never calls the
// runtime, never waits for a relist and takes no lock that the relist loop
// waits for. What the loop tells it (Metrics) goes into atomics. Nothing that
// is asked over HTTP changes anything.
package exporter
