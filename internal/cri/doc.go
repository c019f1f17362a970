// Package cri is plegd's connection to the container runtime: a small, fixed
// set of read-only runtime.v1 calls over one held connection to the runtime's
// unix socket. Each call has a time limit and is measured (operation, time,
// bytes on the wire, outcome); answers come back as plain values.
//
// It may not call anything that changes the runtime: the connection refuses
// every method outside the list in readonly.go. It judges nothing and keeps no
// history beyond the last outcome of each operation. gRPC does not leave this
// package.
package cri
