// Package health turns facts into a verdict. It holds the kubelet's own rules with their messages
// word for word, the modelled kubelet that they are applied to, and the one table of reasons. It is
// pure: plain values in, plain values out, and the time is a parameter.
package health
