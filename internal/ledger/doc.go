// Package ledger lists what the runtime, its shims and the processes behind the runtime are owed:
// bytes that a peer does not read, connections that nobody accepts, pipes that only strangers keep
// open, killed processes that do not end, children that have ceased to run, starts of pods that do not end. Each obligation has
// an age, kept by its identity. One that is older than its limit is followed by internal/chain, and becomes a Finding. So does
// what delays one call after the other, and hangs none.
//
// It samples with or without a hang, and it is cheap while nothing is owed: one dump each of the
// unix and TCP sockets, the descriptors of the runtime, and the process table that the sources of evidence read.
package ledger
