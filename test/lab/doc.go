// Package lab gives the end-to-end tests real things to break: a containerd of
// their own with real pods, the plegd binary, a Prometheus that scrapes it. It
// knows plegd only from outside: its flags, its HTTP paths, its control socket
// and its log.
//
// Everything a test makes lives below a temporary directory, in namespaces and
// cgroups of its own, and is gone when the test ends, however it ends. The lab
// signals no process that it has not started.
//
// The package builds with the tag e2e only and wants root. A test binary that
// uses it must call Main from TestMain: the binary starts itself again as the
// first process of a containerd's namespaces.
package lab
