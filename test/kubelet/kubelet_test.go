//go:build e2e

package kubelet

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
)

// What make e2e-kubelet passes.
const (
	kubeletsEnv  = "KUBELETS"               // versions: the first runs every scenario
	resultsEnv   = "PLEGD_KUBELET_RESULTS"  // the directory of the recordings
	runsEnv      = "RUNS"                   // how often each scenario runs
	lanesEnv     = "LANES"                  // how many run at once
	scenariosEnv = "SCENARIOS"              // a regular expression: only these
	keepEnv      = "KEEP"                   // not empty: runs that are recorded already are not made again
	commitEnv    = "PLEGD_KUBELET_REVISION" // plegd's commit
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(simulatedEnv); socket != "" {
		os.Exit(simulatedMain(socket))
	}
	os.Exit(lab.Main(m))
}

// kubeletProgram builds the kubelet of a version, once, and returns its path.
func kubeletProgram(t testing.TB, version string) string {
	t.Helper()
	cmd := exec.Command("bash", "../lab/kubernetes.sh", "kubelet", version)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the kubelet %s: %v", version, err)
	}
	return strings.TrimSpace(string(out))
}

func number(t *testing.T, env string, otherwise int) int {
	t.Helper()
	s := os.Getenv(env)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number, 1 or more", env, s)
	}
	return n
}

// TestPredictions makes every scenario and compares plegd with the kubelet.
func TestPredictions(t *testing.T) {
	lab.RequireRoot(t)
	versions := strings.Fields(cmp.Or(os.Getenv(kubeletsEnv), "1.36"))
	runs, lanes := number(t, runsEnv, 1), number(t, lanesEnv, 8)
	only, err := regexp.Compile(os.Getenv(scenariosEnv))
	if err != nil {
		t.Fatalf("%s: %v", scenariosEnv, err)
	}
	programs := map[string]string{}
	for _, version := range versions {
		programs[version] = kubeletProgram(t, version)
	}
	// The simulated runtime has no images, which a kubelet asks for.
	images := lab.NewContainerd(t, lab.ContainerdOptions{}).Socket
	free := make(chan struct{}, lanes)
	// t.Run returns when its parallel tests have ended: until then images serves.
	t.Run("all", func(t *testing.T) {
		for run := range runs {
			for i, version := range versions {
				for _, place := range longestFirst(i > 0) {
					s := scenarios[place]
					if !only.MatchString(s.name) || os.Getenv(keepEnv) != "" && recorded(t, version, place, run+1) {
						continue
					}
					t.Run(version+"/"+s.name+"/"+strconv.Itoa(run+1), func(t *testing.T) {
						t.Parallel()
						free <- struct{}{}
						defer func() { <-free }()
						predict(t, &lane{version: version, program: programs[version], options: s, images: images}, place, run+1)
					})
				}
			}
		}
	})
}

// recorded reports whether a run is in the directory of the recordings.
func recorded(t *testing.T, version string, place, run int) bool {
	r := record.Recording{Kubelet: version, Place: place, Run: run}
	_, err := os.Stat(filepath.Join(os.Getenv(resultsEnv), r.File()))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// longestFirst returns the places of the scenarios, the longest first.
func longestFirst(minor bool) []int {
	var places []int
	for i, s := range scenarios {
		if !minor || s.minor {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(scenarios[b].length, scenarios[a].length) })
	return places
}

func predict(t *testing.T, l *lane, place, run int) {
	l.start(t)
	s := l.options
	l.record(&record.Recording{
		Scenario: s.name, Place: place, Run: run, Kubelet: l.version, Commit: os.Getenv(commitEnv), Date: time.Now(),
		Runtime: runtimeName(s), LoopSilent: s.loopSilent, StatusRule: s.statusRule, WantMetrics: s.metrics, WantReady: s.wantReady, PredictedAfter: s.predicted, Deviation: s.deviation,
		WantReason: s.wantReason, ReasonWithin: 15 * second, GoneWithin: 5 * second,
	})
	l.Sleep(calm)
	s.run(l)
	l.Settle(3 * minute)
	for _, problem := range l.Finish().Judge(t, os.Getenv(resultsEnv)) {
		t.Error(problem)
	}
}

func runtimeName(s scenario) string {
	if s.real {
		return lab.RuntimeColumn()
	}
	return "simulated"
}
