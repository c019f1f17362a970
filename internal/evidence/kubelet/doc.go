// Package kubelet finds and reads the node's own kubelet: its process, its settings, its
// healthz and metrics, and the runtime's socket that it is set to.
//
// It talks to the hosts of the configured URLs only, and starts nothing.
package kubelet
