package ledger

import (
	"fmt"
	"hash/fnv"
	"regexp"
)

// inUse finds the path in an error of the kernel's that it is in use (EBUSY).
var inUse = regexp.MustCompile(`(/[^\s":]+)"?: device or resource busy`)

// busy notes the paths that the runtime is to remove or unmount and cannot, by the errors of its calls.
func (p *pass) busy() {
	for _, text := range p.Failures() {
		found := inUse.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(found[1])) // never fails
		p.keep(obligation{
			identity: identity{kind: busyPath, id: hash.Sum64()}, waiter: p.pids[0], name: found[1],
			evidence: fmt.Sprintf("cannot remove %s, which is in use (EBUSY)", found[1]),
		})
	}
}
