//go:build e2e

package cluster

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	resultsEnv = "PLEGD_CLUSTER_RESULTS"  // the directory of the recordings
	commitEnv  = "PLEGD_CLUSTER_REVISION" // plegd's commit

	samplePeriod = 250 * time.Millisecond
	// calm is how long all must be well before a fault, aftermath how long after it:
	// a kubelet may still write what its last update found.
	calm      = 12 * time.Second
	aftermath = 15 * time.Second
)

// scenario is one fault, whose predictions are compared with the API server.
type scenario struct {
	name string
	// statusRule is as in record.Recording.
	statusRule bool
	run        func(*comparison)
}

// plegds are the two that watch, by what the table calls them.
var plegds = []struct{ name, url string }{{"a pod", podURL}, {"a service", serviceURL}}

// comparison records what both plegds predict and what the API server shows.
type comparison struct {
	*cluster
	client          *http.Client
	fault, recovery time.Time
}

// compare makes a scenario and compares.
func (c *cluster) compare(place int, s scenario) *comparison {
	c.t.Helper()
	x := &comparison{cluster: c, client: c.node.Client(5 * time.Second)}
	x.settle(time.Minute)
	began := time.Now()
	samples := make([][]record.Sample, len(plegds))
	var stops []func()
	for i := range plegds {
		stops = append(stops, lab.Every(c.t, samplePeriod, func() {
			if sample, err := x.sample(i); err == nil {
				samples[i] = append(samples[i], sample)
			}
		}))
	}
	x.sleep(calm)
	s.run(x)
	x.settle(3 * time.Minute)
	for _, stop := range stops {
		stop()
	}
	writes := c.ready.Since(began)
	skips, err := record.ReadSkips(c.Path("kubelet.log"), began)
	c.must(err)
	for i, p := range plegds {
		r := &record.Recording{
			Scenario: s.name, Place: 2*place + i, Run: 1, Kubelet: kubernetesVersion, Commit: os.Getenv(commitEnv), Date: began,
			Runtime: runtime.Column() + ", plegd as " + p.name, LoopSilent: true, StatusRule: s.statusRule,
			Fault: x.fault, Recovery: x.recovery, End: time.Now(), Writes: writes, Skips: skips, Samples: samples[i],
		}
		for _, problem := range r.Judge(c.t, os.Getenv(resultsEnv)) {
			c.t.Errorf("%s, plegd as %s: %s", s.name, p.name, problem)
		}
	}
	return x
}

func (x *comparison) sample(i int) (record.Sample, error) { return record.Ask(x.client, plegds[i].url) }

// settle waits until the node is Ready and both plegds are healthy, and a while
// longer.
func (x *comparison) settle(limit time.Duration) {
	x.t.Helper()
	var since time.Time
	lab.Eventually(x.t, limit, "all is well", func() error {
		if err := x.well(); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if well := time.Since(since); well < aftermath {
			return fmt.Errorf("it is so for %s", well)
		}
		return nil
	})
}

func (x *comparison) well() error {
	if !x.isReady() {
		return fmt.Errorf("the node is not Ready")
	}
	for i, p := range plegds {
		if s, err := x.sample(i); err != nil || s.State != "healthy" {
			return fmt.Errorf("plegd as %s: %s %s %w", p.name, s.State, s.Reason, err)
		}
	}
	return nil
}

// sleep waits: the length of the fault is under test.
func (x *comparison) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-x.t.Context().Done():
	}
}

// freeze stops containerd for a while.
func (x *comparison) freeze(d time.Duration) {
	x.fault = time.Now()
	x.containerd.Freeze()
	x.sleep(d)
	x.containerd.Thaw()
	x.recovery = time.Now()
}
