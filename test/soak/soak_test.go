//go:build e2e

package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const (
	// near is how close to an action a degraded interval must lie.
	near = 3 * time.Second
	// pause is the time between two actions, longer than near: an interval then belongs to
	// one of them.
	pause = 5 * time.Second
	// watchPeriod is how often plegd is asked: a soak may last for days.
	watchPeriod = 250 * time.Millisecond
)

// slow are the reasons that are true of a node whose cores are all busy: lists take long,
// and so do the inspections of many pods.
var slow = []string{health.NodePressure, health.RelistSlow}

// node is a containerd with pods.
type node struct {
	t          *testing.T
	containerd *runtime.Containerd
	cri        *runtime.CRI
	pods       []*runtime.Pod
	began      time.Time
}

// action is something that a node's owner does.
type action struct {
	name string
	// allowed are the reasons that plegd may name from the action's start to 3 s after its
	// end.
	allowed []string
	// at is the part of the whole time after which it is made, once; 0: it is made again
	// and again.
	at float64
	do func(*node)
	// start and end are when it was made.
	start, end time.Time
}

// actions are those of an ordinary day.
var actions = []action{
	{name: "pods come and go", do: func(n *node) {
		for _, p := range n.cri.RunPods(3, 2) {
			p.Stop()
			p.Remove()
		}
	}},
	{name: "a container crashes in a loop", do: func(n *node) {
		for range 5 {
			c := n.pods[0].RunContainer("crasher", "--exit-code=1", "--after=500ms")
			lab.Eventually(n.t, 20*time.Second, "the container has exited", func() error {
				if c.FinishedAt().IsZero() {
					return errors.New("it runs")
				}
				return nil
			})
			c.Remove()
		}
	}},
	{name: "an image is imported", do: func(n *node) { n.containerd.ImportImage() }},
	{name: "a container is restarted in every pod", do: func(n *node) {
		for _, p := range n.pods {
			c := p.RunContainer("brief")
			c.Stop()
			c.Remove()
		}
	}},
	// A hundred sandboxes and containers in one go keep every core busy, and are more
	// changes at once than a kubelet inspects in 5 s.
	{name: "100 pods at once", at: .2, allowed: slow, do: func(n *node) {
		n.cri.AtOnce(10, 100, func(int) {
			p := n.cri.RunPod()
			p.RunContainer("app")
			p.Stop()
			p.Remove()
		})
		awaitCalm()
	}},
	// Gone, not listening yet, recovering: each for a moment.
	{name: "containerd is restarted", at: .45, allowed: []string{health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting},
		do: func(n *node) {
			n.containerd.Terminate()
			n.containerd.Start()
		}},
	{name: "the cores are busy", at: .65, allowed: slow, do: func(n *node) {
		n.burn(20 * time.Second)
		awaitCalm()
	}},
}

// burn keeps every core busy with two processes each.
func (n *node) burn(d time.Duration) {
	n.t.Helper()
	for range 2 * goruntime.NumCPU() {
		_, end := lab.StartCommand(n.t, exec.Command("sh", "-c", "while :; do :; done"))
		defer end()
	}
	time.Sleep(d)
}

// awaitCalm returns when the kernel no longer reports that the machine is short of CPU, a
// minute later at most: it reports the last 10 s.
func awaitCalm() {
	_ = lab.Within(time.Minute, func() error {
		if lab.CPUPressure() < lab.Pressed {
			return nil
		}
		return errors.New("the machine is short of CPU")
	})
}

func TestSoak(t *testing.T) {
	whole := lab.Duration(t, "DURATION", 30*time.Minute, time.Minute, 7*24*time.Hour)
	n := &node{t: t, containerd: runtime.NewContainerd(t, runtime.ContainerdOptions{})}
	n.cri = n.containerd.CRI(t)
	n.pods = n.cri.RunPods(10, 1)
	plegd := lab.NewPlegd(t, n.containerd.Socket, lab.PlegdOptions{Flags: []string{"--log.level=info"}})
	plegd.AwaitState(time.Minute, string(facts.StateHealthy))
	n.began = time.Now()
	watch := lab.NewWatchOf(t, plegd.Log, watchPeriod, func() (lab.Status, error) {
		s, err := plegd.Status()
		s.Facts = facts.Facts{} // not needed, and large
		return s, err
	})
	done := n.live(whole)
	n.judge(watch.Sights(n.began), done)
}

// live makes the actions and returns them.
func (n *node) live(whole time.Duration) (done []action) {
	again, once := slices.Clone(actions), slices.Clone(actions)
	again = slices.DeleteFunc(again, func(a action) bool { return a.at > 0 })
	once = slices.DeleteFunc(once, func(a action) bool { return a.at == 0 })
	for time.Since(n.began) < whole || len(once) > 0 {
		next := again[len(done)%len(again)]
		if len(once) > 0 && time.Since(n.began).Seconds() > once[0].at*whole.Seconds() {
			next, once = once[0], once[1:]
		}
		next.start = time.Now()
		n.t.Logf("%7.1fs %s", next.start.Sub(n.began).Seconds(), next.name)
		next.do(n)
		next.end = time.Now()
		done = append(done, next)
		time.Sleep(pause)
	}
	return done
}

// judge compares the intervals in which plegd was not healthy with the actions.
func (n *node) judge(sights []lab.Sight, done []action) {
	n.t.Helper()
	isHealthy := func(s lab.Sight) bool { return s.State == string(facts.StateHealthy) }
	for len(sights) > 0 {
		if isHealthy(sights[0]) {
			sights = sights[1:]
			continue
		}
		end := slices.IndexFunc(sights, isHealthy)
		if end < 0 {
			end = len(sights) - 1
		}
		interval := sights[:end+1]
		sights = sights[end+1:]
		text, reasons, busy := lab.Story(interval, n.began), []string{}, false
		for _, s := range interval[:end] {
			busy = busy || s.Busy
			for _, r := range append(s.Reasons, lab.Reason{ID: s.Reason}) {
				if r.ID != "" && r.Severity != string(facts.SeverityInfo) {
					reasons = append(reasons, r.ID)
				}
			}
			if s.State != string(facts.StateDegraded) {
				n.t.Errorf("%s: want degraded at most", text)
			}
		}
		within := func(allowed []string) bool {
			return !slices.ContainsFunc(reasons, func(r string) bool { return !slices.Contains(allowed, r) })
		}
		var explained []string
		for _, a := range done {
			if !interval[0].At.Before(a.start) && !interval[end].At.After(a.end.Add(near)) && within(a.allowed) {
				explained = append(explained, a.name)
			}
		}
		if busy && within(slow) {
			explained = append(explained, "something else kept the cores busy")
		}
		if len(explained) == 0 {
			n.t.Errorf("%s: no action explains it", text)
		}
		n.t.Logf("%s: %s", text, strings.Join(explained, ", "))
	}
	counts := map[string]int{}
	for _, a := range done {
		counts[a.name]++
	}
	n.t.Log(fmt.Sprint(counts))
}
