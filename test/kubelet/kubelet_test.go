//go:build e2e

package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/kubernetes"
	"github.com/plegd/plegd/test/lab/runtime"
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

// TestPredictions makes every scenario and compares plegd with the kubelet.
func TestPredictions(t *testing.T) {
	lab.RequireRoot(t)
	versions := strings.Fields(cmp.Or(os.Getenv(kubeletsEnv), "1.36"))
	runs, lanes := lab.Number(t, runsEnv, 1), lab.Number(t, lanesEnv, 8)
	only, err := regexp.Compile(os.Getenv(scenariosEnv))
	if err != nil {
		t.Fatalf("%s: %v", scenariosEnv, err)
	}
	programs := map[string]string{}
	for _, version := range versions {
		programs[version] = kubernetes.Kubernetes(t, "kubelet", version)
	}
	nodes := make([]string, len(unpredicted)+runs*len(versions)*len(scenarios))
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node%d", i)
	}
	control := kubernetes.NewControlPlane(t, lab.NewNode(t), controlVersion, nodes...)
	// The simulated runtime has no images, which a kubelet asks for.
	images := runtime.NewContainerd(t, runtime.ContainerdOptions{}).Socket
	free := make(chan struct{}, lanes)
	start := func(t *testing.T, version, name string, s scenario, do func(*lane)) {
		l := &lane{cluster: control, name: nodes[0], version: version, program: programs[version], options: s, images: images}
		nodes = nodes[1:]
		t.Run(version+"/"+name, func(t *testing.T) {
			t.Parallel()
			free <- struct{}{}
			defer func() { <-free }()
			l.start(t)
			do(l)
		})
	}
	// t.Run returns when its parallel tests have ended: until then the control plane serves.
	t.Run("all", func(t *testing.T) {
		for run := range runs {
			for i, version := range versions {
				for _, place := range longestFirst(i > 0) {
					s := scenarios[place]
					if only.MatchString(s.name) && (os.Getenv(keepEnv) == "" || !recorded(t, version, place, run+1)) {
						start(t, version, s.name+"/"+strconv.Itoa(run+1), s, func(l *lane) { l.predict(place, run+1) })
					}
				}
			}
		}
		for _, s := range unpredicted {
			if only.MatchString(s.name) {
				start(t, versions[0], s.name, s, s.run)
			}
		}
	})
}

// controlVersion is the Kubernetes version of the control plane.
const controlVersion = "1.36"

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

// predict makes the scenario and compares plegd with the kubelet.
func (l *lane) predict(place, run int) {
	s := l.options
	l.record(&record.Recording{
		Scenario: s.name, Place: place, Run: run, Kubelet: l.version, Commit: os.Getenv(commitEnv), Date: time.Now(),
		Runtime: runtimeName(s), LoopSilent: s.loopSilent, StatusRule: s.statusRule, WantMetrics: s.metrics, WantReady: s.wantReady, PredictedAfter: s.predicted, Deviation: s.deviation,
		WantReason: s.wantReason, ReasonWithin: cmp.Or(s.reasonWithin, 15*second), GoneWithin: cmp.Or(s.goneWithin, 5*second), Unknown: s.unknown,
	})
	l.Sleep(calm)
	s.run(l)
	l.Settle(settleLimit(s))
	for _, problem := range l.Finish().Judge(l, os.Getenv(resultsEnv)) {
		l.Error(problem)
	}
}

// settleLimit is how long all may take to be well after a fault. A kubelet that relies on events relists 5 min apart.
func settleLimit(s scenario) time.Duration {
	if s.evented && !s.metrics {
		return 3*minute + relist.EventedPeriod
	}
	return 3 * minute
}

func runtimeName(s scenario) string {
	if s.real {
		return runtime.Column()
	}
	return "simulated"
}
