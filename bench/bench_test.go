package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The comparison is worth something only if all subjects do the same work: they
// receive as many bytes, and peer and plegd find the same pods and events. No
// time is asserted here: that is the table's.
func TestSubjectsDoTheSameWork(t *testing.T) {
	for _, churn := range []float64{0, 0.1, 1} {
		t.Run(fmt.Sprintf("churn=%g", churn), func(t *testing.T) {
			const pods, relists = 20, 25
			socket := filepath.Join(t.TempDir(), "s")
			rt, err := startRuntime(socket, pods, 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(rt.Stop)

			all := map[string]subject{}
			for _, name := range subjects() {
				s, err := newSubject(name, socket)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.close)
				all[name] = s
			}
			for i := range relists {
				for _, name := range subjects() {
					if err := all[name].relist(t.Context()); err != nil {
						t.Fatalf("%s, relist %d: %v", name, i, err)
					}
				}
				if i == 0 {
					continue // what was there at the first is new to one and a start to the other
				}
				rt.Churn(churn)
			}
			for _, name := range subjects() {
				if err := all[name].relist(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			floor, peer, plegd := all[floorName], all[plainName], all[relistName]
			if floor.bytes() == 0 || floor.bytes() != plegd.bytes() {
				t.Errorf("the floor received %d bytes, plegd %d", floor.bytes(), plegd.bytes())
			}
			if peer.pods() != pods || plegd.pods() != pods {
				t.Errorf("the peer knows %d pods, plegd %d, there are %d", peer.pods(), plegd.pods(), pods)
			}
			// plegd reports the pods of its first relist as started, as the
			// kubelet does: a sandbox and two containers each.
			if diff := cmp.Diff(peer.events()+pods*3, plegd.events()); diff != "" {
				t.Errorf("events of the peer (-), of plegd (+):\n%s", diff)
			}
			if want := churn > 0; want != (peer.events() > 0) {
				t.Errorf("the peer saw %d events at a churn of %g", peer.events(), churn)
			}
		})
	}
}

func TestMeasureCountsWholeRounds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	rt, err := startRuntime(socket, 3, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	s, err := newSubject(plainName, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	r, err := measure(t.Context(), s, 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Relists != 5 || len(r.Latencies) != 5 || r.AllocObjects == 0 || r.Bytes == 0 || r.RSS == 0 || r.Pods != 3 {
		t.Errorf("a round of 5 relists of 3 pods reads %+v", r)
	}
}

// slow is a subject whose relists take long.
type slow struct {
	subject
	took time.Duration
}

func (s slow) relist(context.Context) error { time.Sleep(s.took); return nil }
func (slow) bytes() int                     { return 0 }
func (slow) pods() int                      { return 0 }
func (slow) events() int                    { return 0 }

// TestMeasurePeriod: a client that takes long for a relist makes no fewer of them.
func TestMeasurePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := measure(t.Context(), slow{took: 300 * time.Millisecond}, 10, time.Second); err != nil {
			t.Fatal(err)
		}
		// And one before they are counted.
		if passed := time.Since(start); passed != 10*time.Second+300*time.Millisecond {
			t.Errorf("10 relists of 300 ms at 1 Hz take %s", passed)
		}
	})
}

// compare lets all subjects make relists in turns, and returns their rounds.
func compare(ctx context.Context, pods, containers, rounds, relists int) (map[string]result, error) {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "runtime.sock")
	server, err := startRuntimeChild(ctx, socket, pods, containers, 0)
	if err != nil {
		return nil, err
	}
	defer server.close()
	results := map[string]result{}
	for _, name := range subjects() {
		c, err := startChild(ctx, name, "-socket", socket)
		if err != nil {
			return nil, err
		}
		defer c.close()
		for range rounds {
			r, err := c.round(order{Relists: relists})
			if err != nil {
				return nil, err
			}
			results[name] = append(results[name], r)
		}
	}
	return results, nil
}

func TestCompareRunsEverySubject(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := compare(ctx, 2, 1, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range subjects() {
		if len(results[name]) != 2 {
			t.Errorf("%s made %d rounds of 2", name, len(results[name]))
		}
	}
}

// A steady state allocates for gRPC's two calls, whatever the number of
// containers: hardly more than the floor, next to nothing beside the peer.
func TestSteadyStateAllocatesForItsCallsOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	results, err := compare(ctx, 500, 2, 3, 10)
	if err != nil {
		t.Fatal(err)
	}
	floor, peer, plegd := results[floorName], results[plainName], results[relistName]
	t.Logf("objects: floor %.0f, plegd %.0f; bytes: peer %.0f, plegd %.0f", floor.allocObjects(), plegd.allocObjects(), peer.allocBytes(), plegd.allocBytes())
	if more := plegd.allocObjects() - floor.allocObjects(); more > 40 {
		t.Errorf("a relist of 1500 unchanged entries makes %.0f allocations more than receiving them, want 40 at most", more)
	}
	share := 100.0
	if raced {
		share = 2
	}
	if plegd.allocBytes() > peer.allocBytes()/share {
		t.Errorf("a relist allocates %.0f bytes, the peer's %.0f: want 1/%.0f at most", plegd.allocBytes(), peer.allocBytes(), share)
	}
}

// BenchmarkRelist is for make bench-compare: one commit against another. What
// one subject costs beside the others is what the program is for (make bench).
func BenchmarkRelist(b *testing.B) {
	for _, pods := range []int{110, 500, 2000} {
		for _, name := range subjects() {
			b.Run(fmt.Sprintf("subject=%s/pods=%d", name, pods), func(b *testing.B) {
				socket := filepath.Join(b.TempDir(), "s")
				server, err := startRuntimeChild(b.Context(), socket, pods, 2, 0)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(server.close)
				s, err := newSubject(name, socket)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(s.close)
				for range 3 {
					if err := s.relist(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				cpu := cpuTime()
				for b.Loop() {
					if err := s.relist(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
