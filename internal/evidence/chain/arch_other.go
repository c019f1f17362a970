//go:build !amd64

package chain

// Newer architectures have no other system calls than those that all have.
var (
	archIdleCalls map[int]string
	archPathCalls map[int]int
)
