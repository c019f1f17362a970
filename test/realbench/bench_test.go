//go:build e2e

package realbench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// A limit is the highest cost that is allowed. A cost above wanted is printed as missed. The test fails
// above worst, which is a tenth more than was measured, so that only a regression fails.
type limit struct{ wanted, worst float64 }

// limits are those of the whole of plegd at a number of real pods.
var limits = []struct {
	pods     int
	perPlain limit // CPU time, as a ratio to the plain client's
}{
	{pods: 10, perPlain: limit{wanted: 1.2, worst: 1.4}},
	{pods: 110, perPlain: limit{wanted: 1.0, worst: 1.0}},
	{pods: 250, perPlain: limit{wanted: 0.8, worst: 0.8}},
}

var (
	wakeups = limit{wanted: 12, worst: 12.5} // voluntary context switches a second, calm
	inFault = limit{wanted: 15, worst: 15}   // CPU ms a second
	perNPD  = limit{wanted: 1.5, worst: 1.5} // CPU time at npdPods, as a ratio to node-problem-detector's
)

const (
	npdPods = 110
	// settleTime is how long plegd and the runtime have after the last pod was made.
	settleTime = 20 * time.Second
	// faultTime is how long a fault has lasted when its measurement begins.
	faultTime = 5 * time.Second
)

// TestReal prints a table and fails where a limit is broken.
func TestReal(t *testing.T) {
	window := lab.Duration(t, "PLEGD_BENCH_WINDOW", 30*time.Second, time.Second, time.Hour)
	only := lab.Number(t, "PLEGD_BENCH_PODS", 0)
	kubelet := givenKubelet(t)
	load, err := os.ReadFile("/proc/loadavg")
	lab.Must(t, err)
	fmt.Printf("%s; %s, %d cores, load %s, %s\n", time.Now().UTC().Format("2006-01-02"), goruntime.Version(), goruntime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version())
	fmt.Printf("each line %s; CPU with children; switches are voluntary ones; read is all that read(2) returned\n", window)
	fmt.Printf("%4s %-24s %9s %7s %12s %10s %10s\n", "pods", "process", "CPU ms/s", "ratio", "switches/s", "resident", "read KiB/s")
	for _, l := range limits {
		if only != 0 && only != l.pods {
			continue
		}
		t.Run(fmt.Sprint(l.pods), func(t *testing.T) { measure(t, l.pods, l.perPlain, window, kubelet) })
	}
}

// measure measures the processes beside one containerd, calm and within a fault.
func measure(t *testing.T, pods int, perPlain limit, window time.Duration, kubelet kubelet) {
	containerd := runtime.NewContainerd(t, runtime.ContainerdOptions{Node: kubelet.path != ""})
	processes := start(t, containerd, pods, kubelet)
	bench := os.Getenv("PLEGD_BENCH") // the program of make bench, which is the plain client too
	if bench == "" {
		t.Fatal("PLEGD_BENCH is not set: run make bench-real")
	}
	plain, _ := lab.StartProgram(t, "plain", bench, "plain", containerd.Socket)
	processes = slices.Insert(processes, 1, measured{"plain client", plain})
	if dir := os.Getenv("PLEGD_BENCH_NPD"); dir != "" {
		processes = slices.Insert(processes, 2, measured{"node-problem-detector", startNPD(t, dir, containerd.Socket)})
	}
	time.Sleep(settleTime)
	calm := sampleAll(t, processes, window)
	show(pods, "", calm)
	ratio := calm[0].cpu / calm[1].cpu
	check(t, "plegd / plain client", ratio, perPlain)
	check(t, "plegd's switches a second", calm[0].switches, wakeups)
	if os.Getenv("PLEGD_BENCH_NPD") != "" && pods == npdPods {
		check(t, "plegd / node-problem-detector", calm[0].cpu/calm[2].cpu, perNPD)
	}
	containerd.Freeze()
	time.Sleep(faultTime)
	fault := sampleAll(t, processes[:1], window)
	containerd.Thaw()
	show(pods, ", runtime stopped", fault)
	check(t, "plegd's CPU ms a second within a fault", fault[0].cpu, inFault)
}

// start makes the pods and starts plegd. It returns plegd, and after it the kubelet where one is given.
func start(t *testing.T, containerd *runtime.Containerd, pods int, kubelet kubelet) []measured {
	t.Helper()
	env := []string{"GOMAXPROCS=1", "GOGC=75", "GOMEMLIMIT=96MiB"} // as in the unit
	if kubelet.path != "" {
		pid := kubelet.start(t, containerd, pods)
		return []measured{{"plegd", startPlegd(t, containerd, env)}, {kubelet.name, pid}}
	}
	containerd.CRI(t).RunPods(pods, 1)
	plegd := lab.NewPlegd(t, containerd.Socket, lab.PlegdOptions{Env: env, Flags: []string{"--log.level=info"}})
	return []measured{{"plegd", plegd.Pid()}}
}

func check(t *testing.T, name string, got float64, most limit) {
	t.Helper()
	if got > most.wanted {
		fmt.Printf("missed: %s: %.2f, at most %g are wanted\n", name, got, most.wanted)
	}
	if got > most.worst {
		t.Errorf("%s: %.2f, at most %g", name, got, most.worst)
	}
}

// measured is a process with its children.
type measured struct {
	name string
	pid  int
}

// sample is what a process takes: rates a second.
type sample struct {
	name          string
	cpu           float64 // ms
	switches      float64
	readBytes     float64
	residentBytes float64
}

// sampleAll measures all processes in the same window.
func sampleAll(t *testing.T, processes []measured, window time.Duration) []sample {
	t.Helper()
	begin := make([]counters, len(processes))
	for i, p := range processes {
		begin[i] = read(t, p)
	}
	time.Sleep(window)
	out := make([]sample, len(processes))
	for i, p := range processes {
		end := read(t, p)
		seconds := end.at.Sub(begin[i].at).Seconds()
		out[i] = sample{
			name:          p.name,
			cpu:           (end.cpu - begin[i].cpu).Seconds() * 1000 / seconds,
			switches:      float64(end.switches-begin[i].switches) / seconds,
			readBytes:     float64(end.readBytes-begin[i].readBytes) / seconds,
			residentBytes: float64(end.residentBytes),
		}
	}
	return out
}

func show(pods int, state string, samples []sample) {
	for i, s := range samples {
		ratio := "-"
		if i == 0 && len(samples) > 1 {
			ratio = fmt.Sprintf("%.2f", s.cpu/samples[1].cpu)
		}
		fmt.Printf("%4d %-24s %9.2f %7s %12.0f %6.1f MiB %10.0f\n", pods, s.name+state, s.cpu, ratio, s.switches,
			s.residentBytes/(1<<20), s.readBytes/(1<<10))
	}
}

// counters are the counters of a process.
type counters struct {
	at            time.Time
	cpu           time.Duration // of all its threads, and of the children that it has waited for
	switches      int64         // voluntary ones of all threads
	readBytes     int64
	residentBytes int64
}

// read reads the counters of a process that must be alive.
func read(t *testing.T, p measured) counters {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", p.pid)
	c := counters{
		at:            time.Now(),
		readBytes:     field(t, filepath.Join(dir, "io"), "rchar:"),
		residentBytes: field(t, filepath.Join(dir, "status"), "VmRSS:") << 10,
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	lab.Must(t, err)
	for _, thread := range threads {
		task := filepath.Join(dir, "task", thread.Name())
		schedstat, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if err != nil {
			continue // the thread has ended
		}
		ran, err := strconv.ParseInt(strings.Fields(string(schedstat))[0], 10, 64)
		lab.Must(t, err)
		c.cpu += time.Duration(ran)
		c.switches += field(t, filepath.Join(task, "status"), "voluntary_ctxt_switches:")
	}
	c.cpu += childrenCPU(t, dir)
	return c
}

// childrenCPU returns the CPU time of the children that a process has waited for.
func childrenCPU(t *testing.T, dir string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	lab.Must(t, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const cutime, cstime, tick = 13, 14, 10 * time.Millisecond // proc(5): fields 16 and 17, after pid and comm
	var ticks int64
	for _, i := range []int{cutime, cstime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		lab.Must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// field returns the number behind a name at the begin of a line of a file.
func field(t *testing.T, path, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	lab.Must(t, err)
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		lab.Must(t, err)
		return n
	}
	t.Fatalf("%s has no line %s", path, name)
	return 0
}

// npdConfig is node-problem-detector's health check of the runtime as it is shipped
// (config/health-checker-containerd.json), with this lab's socket and without its repair.
const npdConfig = `{"plugin": "custom", "pluginConfig": {"invoke_interval": "10s", "timeout": "3m", "max_output_length": 80, "concurrency": 1},
 "source": "health-checker", "metricsReporting": false,
 "conditions": [{"type": "ContainerRuntimeUnhealthy", "reason": "ContainerRuntimeIsHealthy", "message": "Container runtime on the node is functioning properly"}],
 "rules": [{"type": "permanent", "condition": "ContainerRuntimeUnhealthy", "reason": "ContainerdUnhealthy", "path": %q,
  "args": ["--component=cri", "--enable-repair=false", "--crictl-path=%s", "--cri-socket-path=unix://%s", "--cooldown-time=2m", "--health-check-timeout=60s"], "timeout": "3m"}]}`

// startNPD starts node-problem-detector with its health check of the runtime.
func startNPD(t *testing.T, dir, socket string) int {
	t.Helper()
	config := filepath.Join(lab.Dir(t), "health-checker.json")
	text := fmt.Sprintf(npdConfig, filepath.Join(dir, "health-checker"), filepath.Join(dir, "crictl"), socket)
	lab.Must(t, os.WriteFile(config, []byte(text), 0o600))
	// It ends where it has no exporter at all.
	_, port, err := net.SplitHostPort(lab.FreeAddress(t))
	lab.Must(t, err)
	pid, ended := lab.StartProgram(t, "npd", filepath.Join(dir, "node-problem-detector"), "--enable-k8s-exporter=false",
		"--prometheus-port="+port, "--port=0", "--config.custom-plugin-monitor="+config)
	select {
	case <-ended:
		t.Fatal("node-problem-detector ended at once: see its log")
	case <-time.After(3 * time.Second):
	}
	return pid
}
