package daemon

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/must"
)

// days: go test ./internal/daemon -run TestWeek -days 7 -timeout 2h.
var days = flag.Float64("days", 0.01, "how many days TestWeek plays")

// TestWeek plays days with the real constants in fast forward: pods that come and go,
// faults that come and go, hours of flapping. Relists continue throughout, and all
// stored state stays within its bounds.
func TestWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not parallel: it measures the process
		dir := t.TempDir()
		rt := fakeRuntime(3, 1)
		w := watch(t, rt, func(c *Config) { c.StateDir = dir })
		length := time.Duration(*days * float64(24*time.Hour))
		r := rand.New(rand.NewPCG(7, 7))
		faults := []string{
			"socket=freeze", "ListContainers=hang", "ListPodSandbox=error(Internal: boom)", "Status=hang", "PodSandboxStatus=hang",
			"ListContainers=delay(5s)", "ListPodSandbox=2*hang->1*off->2*hang->1*off->2*hang->1*off->off", "socket=noaccept", "*=error(Unknown: server is not initialized yet)",
		}
		var m0, m1 goruntime.MemStats
		goroutines := 0
		made, flaps := 0, 0
		for at := 30 * time.Second; at < length; {
			w.at(at)
			if made == 1 { // all that is made once has been made
				goruntime.GC()
				goruntime.ReadMemStats(&m0)
				goroutines = goruntime.NumGoroutine()
			}
			if r.IntN(12) == 0 { // flapping, faster than incidents may open
				for range 100 {
					flaps++
					w.rt.SetCondition("NetworkReady", false, "No", "no")
					at += 7 * time.Second
					w.at(at)
					w.rt.SetCondition("NetworkReady", true, "", "")
					at += 7 * time.Second
					w.at(at)
				}
			} else {
				w.fail(faults[made%len(faults)])
				pod := w.rt.AddPod(fakeruntime.PodSpec{Name: fmt.Sprintf("pod-%d", made), Namespace: "default"})
				at += 10*time.Second + time.Duration(r.Int64N(int64(6*time.Minute)))
				w.at(at)
				w.fail("")
				w.rt.RemovePod(pod.UID)
				made++
			}
			at += 4*time.Minute + 10*time.Second
			if made%100 == 0 {
				t.Logf("%s: %d faults, %d flaps", at, made, flaps)
			}
			if s := w.at(at); s.Verdict.State != facts.StateHealthy {
				t.Fatalf("at %s after fault %d: %s, %s", at, made, s.Verdict.State, s.Verdict.Reason)
			}
			at += time.Duration(r.Int64N(int64(10 * time.Minute)))
		}
		s := w.at(length + 20*time.Minute)
		goruntime.GC()
		goruntime.ReadMemStats(&m1)
		list := w.d.Incidents()
		var bytes int64
		entries, err := os.ReadDir(incident.Dir(dir))
		must.Do(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
				if info.Size() > incident.MaxFileBytes {
					t.Errorf("%s has %d bytes", e.Name(), info.Size())
				}
			}
		}
		t.Logf("%s: %d relists, %d faults, %d flaps, %d incidents kept in %d files of %d KB; heap %d KB, then %d KB; %d goroutines, then %d",
			length, s.Facts.Relist.Attempts, made, flaps, len(list), len(entries), bytes>>10, m0.HeapAlloc>>10, m1.HeapAlloc>>10, goroutines, goruntime.NumGoroutine())
		if len(list) > incident.MaxFiles || len(entries) > incident.MaxFiles {
			t.Errorf("%d incidents in %d files of %d bytes", len(list), len(entries), bytes)
		}
		if want := uint64(length.Seconds() / 30); s.Facts.Relist.Attempts < want {
			t.Errorf("%d relists in %s", s.Facts.Relist.Attempts, length)
		}
		if n := goruntime.NumGoroutine(); goroutines > 0 && n > goroutines+10 {
			t.Errorf("%d goroutines after the first fault, %d at the end", goroutines, n)
		}
		// The stored state grows to its bounds: the last incident, the queue, the list.
		if most := m0.HeapAlloc + 24<<20; goroutines > 0 && m1.HeapAlloc > most {
			t.Errorf("the heap was %d KB after the first fault and is %d KB", m0.HeapAlloc>>10, m1.HeapAlloc>>10)
		}
		for _, i := range list {
			if i.Outcome == incident.Open {
				t.Errorf("%s is open for ever: %s", i.ID, i.Reason)
			}
		}
	})
}
