// Package fakeruntime is a simulated container runtime: a gRPC server of
// runtime.v1 over a model of pods and containers, served in memory for tests and
// on a unix socket for `plegd simulate`. Each list is marshalled again, in
// another order. Faults are injected per call (hang, delay, error, panic,
// oversized or broken answers) and below gRPC (a socket that does not accept,
// sends nothing, or freezes).
//
// Product code must not import it, the simulate command excepted, and it must not
// import product code: it tests plegd's assumptions about a runtime.
//
// A Runtime that is created in a testing/synctest bubble and served in memory
// (Start, not Listen) uses the bubble's clock; Stop ends all its goroutines.
package fakeruntime
