package cri

import (
	"fmt"
	"testing"
)

// BenchmarkWireReader reads both lists of a steady state, without a connection.
func BenchmarkWireReader(b *testing.B) {
	for _, pods := range []int{110, 500, 2000, 5000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			l := someLists(pods)
			sandboxes, containers := newSandboxReader(), newContainerReader()
			var sb, cb [6][]byte
			for i := range sb {
				sb[i], cb[i] = l.marshal(b)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := read(sandboxes, sb[i%len(sb)]); err != nil {
					b.Fatal(err)
				}
				if _, err := read(containers, cb[i%len(cb)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(3*pods), "ns/item")
		})
	}
}
