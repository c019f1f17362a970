// Package fakeruntime is a container runtime that is not there: a real gRPC server
// of runtime.v1 over a model of pods and containers, in memory for tests and on
// a unix socket for `plegd simulate`. It answers as a runtime does, marshalled
// again and in another order each time, and it fails as runtimes fail: by call
// (failpoints: hang, delay, error, panic, oversized or broken answers) and below
// gRPC (a socket that does not accept, does not speak, freezes or trickles).
//
// It exists for tests and for simulation only. Product code must not import it,
// the simulate command excepted, and it must not import product code: what plegd
// believes about a runtime is tested against it.
//
// Everything runs in goroutines that are started by the methods of Runtime and
// that end with Stop, so a Runtime works in a testing/synctest bubble as long
// as it is started in the bubble and served in memory (Start, not Listen).
// Nothing is read from the real clock but through time.Now, time.NewTimer and
// contexts, which the bubble replaces.
package fakeruntime
