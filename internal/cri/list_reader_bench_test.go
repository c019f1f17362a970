package cri

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/mem"
)

// BenchmarkListReader reads both lists of a steady state, without a connection.
func BenchmarkListReader(b *testing.B) {
	for _, pods := range []int{110, 500, 2000, 5000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			l := someLists(pods)
			sandboxes := newSandboxReader()
			containers := newContainerReader(sandboxes)
			var sb, cb [6]mem.BufferSlice // in the pieces in which a connection receives them
			for i := range sb {
				s, c := l.marshal(b)
				sb[i], cb[i] = pieces(s, 16<<10), pieces(c, 16<<10)
			}
			b.ReportAllocs()
			for i := range sb { // what is new is read whole: not that
				_, _ = sandboxes.read(sb[i])
				_, _ = containers.read(cb[i])
			}
			cpu := cpuTime()
			for i := 0; b.Loop(); i++ {
				if _, err := sandboxes.read(sb[i%len(sb)]); err != nil {
					b.Fatal(err)
				}
				if _, err := containers.read(cb[i%len(cb)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/float64(3*pods), "cpu-ns/item")
		})
	}
}

// cpuTime is this process's: the wall clock of a busy machine tells nothing.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
