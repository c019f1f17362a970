//go:build e2e

package hostile

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// The families of attacks. Each is counted at the end of `make e2e-hostile`.
const (
	lists     = "answers of the runtime"
	clients   = "web clients"
	files     = "files named or planted by others"
	identity  = "process identity"
	secrets   = "secrets"
	denials   = "denied by the kernel"
	brokeNode = "a broken node"
)

// counts are the attacks of each family, and those that plegd has withstood.
var counts = struct {
	sync.Mutex
	made, withstood map[string]int
}{made: map[string]int{}, withstood: map[string]int{}}

// countAttack counts a test as an attack of a family: withstood unless it fails or is skipped.
func countAttack(t *testing.T, family string) {
	t.Helper()
	t.Cleanup(func() {
		counts.Lock()
		defer counts.Unlock()
		if t.Skipped() {
			return
		}
		counts.made[family]++
		if !t.Failed() {
			counts.withstood[family]++
		}
	})
}

// printCounts prints how many attacks of each family were withstood.
func printCounts() {
	for _, family := range slices.Sorted(maps.Keys(counts.made)) {
		fmt.Printf("attacks: %s: %d of %d withstood\n", family, counts.withstood[family], counts.made[family])
	}
}
