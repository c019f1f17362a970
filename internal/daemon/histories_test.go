package daemon

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// historySeeds: go test ./internal/daemon -run TestHistories -histories 200 -timeout 1h.
var historySeeds = flag.Int("histories", 4, "number of random histories of TestHistories")

// history is a random history of a runtime, a kubelet and plegd.
type history struct {
	t       *testing.T
	random  *rand.Rand
	procfs  string
	config  func(*Config)
	kubelet *plainKubelet
	w       *watched
	pid     int // of the kubelet
	log     []string
	samples []facts.Snapshot
}

// TestHistories: whatever has happened, 60 s after the last disturbance the verdict is healthy and has no window, and
// the model was never certain of NotReady while the API showed Ready.
func TestHistories(t *testing.T) {
	for seed := range *historySeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, random: rand.New(rand.NewPCG(37, seed)), procfs: t.TempDir(), pid: 100}
	boot := filepath.Join(h.procfs, "sys/kernel/random")
	mkdir(t, boot)
	write(t, filepath.Join(boot, "boot_id"), "b007\n")
	kubeletProcess(t, h.procfs, h.pid, 1)
	rt, dir := fakeRuntime(10, 2), t.TempDir()
	h.config = func(cfg *Config) { cfg.ProcFS, cfg.StateDir = h.procfs, dir }
	h.kubelet = startKubelet(t, rt, cri.DefaultRPCTimeout, phasesOf(h.random.IntN(6)))
	h.w = watch(t, rt, h.config)
	return h
}

// run makes up to six disturbances, ends them all, and looks for a minute.
func (h *history) run() {
	faults := []string{
		"socket=freeze", "ListContainers=hang", "ListPodSandbox=hang", "Status=hang", "Version=hang", "Version=hang;Status=hang",
		"ListContainers=delay(4s)", "ListContainers=delay(40s)", "Status=delay(20s)", "PodSandboxStatus=delay(1s)",
		"Status=error(Unknown: m)", "Status=notready(RuntimeReady)", "ListContainers=error(Internal: m)",
	}
	h.watch(time.Duration(5+h.random.IntN(20)) * time.Second)
	for range 1 + h.random.IntN(6) {
		switch h.random.IntN(6) {
		case 0:
			h.restartPlegd()
		case 1:
			h.restartKubelet()
		case 2:
			h.restartRuntime()
		default:
			h.fail(faults[h.random.IntN(len(faults))])
		}
		h.watch(time.Duration(h.random.IntN(200)) * time.Second)
		if h.random.IntN(2) == 0 {
			h.fail("")
			h.watch(time.Duration(h.random.IntN(40)) * time.Second)
		}
	}
	h.fail("")
	h.watch(time.Minute)
	v := h.samples[len(h.samples)-1].Verdict
	if v.State != facts.StateHealthy || !v.NodeReady || v.NotReadyIn != nil || v.ReadyIn != nil {
		h.t.Errorf("60 s after the last disturbance: %s %s, node Ready %t, NotReady in %v, Ready in %v", v.State, v.Reason, v.NodeReady, v.NotReadyIn, v.ReadyIn)
	}
	h.noFalseNotReady()
	if h.t.Failed() {
		h.t.Logf("the API changed at %v: %s", h.kubelet.changes(), strings.Join(h.log, ", "))
	}
}

func (h *history) note(event string) {
	h.log = append(h.log, time.Now().Format("4:05.0 ")+event)
}

func (h *history) fail(spec string) {
	h.note("failpoints " + spec)
	h.w.fail(spec)
}

// watch takes four samples a second.
func (h *history) watch(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		h.samples = append(h.samples, h.w.at(time.Since(h.w.t0)+250*time.Millisecond))
	}
}

func (h *history) restartPlegd() {
	h.note("plegd restarts")
	h.w.stop()
	time.Sleep(time.Duration(1+h.random.IntN(20)) * time.Second)
	h.w = watch(h.t, h.w.rt, h.config)
}

func (h *history) restartKubelet() {
	h.note("the kubelet restarts")
	if err := os.RemoveAll(filepath.Join(h.procfs, fmt.Sprint(h.pid))); err != nil {
		h.t.Fatal(err)
	}
	h.pid++
	kubeletStarts(h.t, h.procfs, h.pid)
	h.kubelet.restart()
}

func (h *history) restartRuntime() {
	h.note("the runtime restarts")
	h.w.rt.Kill()
	h.watch(time.Duration(h.random.IntN(50)) * time.Second)
	restart(h.w)
}

// noFalseNotReady: NotReady is certain only while the API shows it, or within 0.3 s of that. A kubelet may see the end of
// a fault up to 2 s before plegd does.
func (h *history) noFalseNotReady() {
	api := h.kubelet.changes()
	for _, s := range h.samples {
		notReady, next := conditionAt(api, s.At)
		soon := !next.IsZero() && next.Sub(s.At) < 300*time.Millisecond
		was, _ := conditionAt(api, s.At.Add(-2*time.Second))
		if s.Facts.NodeStatus.State == "not ready" && !notReady && !soon && !was {
			h.t.Errorf("%s: NotReady is certain while the API shows Ready: %s %s", s.At.Format("4:05.00"), s.Verdict.State, s.Verdict.KubeletMessage)
			return
		}
	}
}
