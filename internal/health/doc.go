// Package health turns facts into a verdict. It holds the kubelet's own rules
// (PLEG healthy, sync loop allowed, node Ready) with their messages word for
// word, the modelled kubelet that they are applied to, and the one table of
// reasons.
//
// It is pure: plain values in, plain values out, the time is a parameter. It
// may not read a clock, a file or a socket, and imports none of its
// neighbours.
package health
