//go:build !amd64

package proc

// archIdleCalls is empty: newer architectures have no further system calls.
var archIdleCalls map[int]string
