// Package bundle writes what is known of a node into one archive that can be
// attached to a ticket before anything is restarted: plegd's own findings, and
// what the kernel shows of the runtime and the processes around it.
//
// It reads only: it sends no signal, starts no process, and calls no function of
// the runtime but those that print its state. Each part has a limit of time and
// size and can be abandoned; what could not be had is listed in the archive. It
// knows no reason and judges nothing.
package bundle
