//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// life is what a test does with one container or sandbox, as the events that
// must come of it.
type life struct {
	what, id, container string
	pod                 *lab.Pod
	sandbox             bool
	events              []string
}

// TestPodsTruth makes pods, ends some of their containers and removes some, and
// compares with what plegd says has happened: it must be exactly that.
func TestPodsTruth(t *testing.T) {
	t.Parallel()
	lab.Heavy(t)
	runtime := lab.NewRuntime(t)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(10*time.Second, 2)
	logged := plegd.Log.Len()
	was := counts(t, plegd) // a runtime that is not the test's own has pods already

	const pods = 22
	made := make([]*lab.Pod, pods)
	type member struct {
		*lab.Container
		code string // what it exits with when it is stopped
	}
	members := make([][]member, pods)
	lab.Two(pods, func(i int) {
		made[i] = runtime.RunPod()
		for n := range 2 {
			code := fmt.Sprint(1 + (i*2+n)%120)
			c := made[i].RunContainer(fmt.Sprintf("app-%d", n), "--exit-code="+code)
			members[i] = append(members[i], member{c, code})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	var lives []*life
	of := make(map[string]*life)
	add := func(l *life) {
		lives = append(lives, l)
		of[l.id] = l
	}
	for i, pod := range made {
		add(&life{what: pod.Name, id: pod.ID, pod: pod, sandbox: true, events: []string{"ContainerStarted"}})
		for _, m := range members[i] {
			add(&life{what: pod.Name + "/" + m.Name, id: m.ID, container: m.Name, pod: pod, events: []string{"ContainerStarted"}})
		}
	}
	agree := func(stage string) {
		t.Helper()
		lab.Eventually(t, 8*time.Second, stage+": the events agree with what was done", func() error {
			return compare(lives, plegd.Log.Events(logged))
		})
	}
	died := func(id, code string) {
		event := "ContainerDied"
		if code != "" {
			event += "(" + code + ")"
		}
		of[id].events = append(of[id].events, event)
	}
	removed := func(id string) { of[id].events = append(of[id].events, "ContainerRemoved") }

	agree("all run")
	want := was
	want.pods, want.running = was.pods+pods, was.running+2*pods
	countsAre(t, plegd, want)

	// In every second pod a container ends with a code of its own.
	lab.Two(pods/2, func(i int) { members[2*i][0].Stop() })
	for i := 0; i < pods; i += 2 {
		died(members[i][0].ID, members[i][0].code)
	}
	agree("some have ended")
	want.running, want.exited = want.running-pods/2, want.exited+pods/2
	countsAre(t, plegd, want)

	// Some of the ended are removed, and so is one that runs; one that was only
	// ever created appears and goes.
	for i := 0; i < 8; i += 2 {
		members[i][0].Remove()
		removed(members[i][0].ID)
	}
	members[9][1].Remove()
	died(members[9][1].ID, "")
	removed(members[9][1].ID)
	agree("some are removed")
	want.running, want.exited = want.running-1, want.exited-4
	countsAre(t, plegd, want)

	// One that was never started is no event of the kubelet's, but a change; its
	// going is both its death and its removal.
	created := made[11].CreateContainer("never-started")
	want.created++
	countsAre(t, plegd, want)
	add(&life{what: "never-started", id: created.ID, container: "never-started", pod: made[11]})
	created.Remove()
	died(created.ID, "")
	removed(created.ID)
	agree("a created one is removed")
	want.created--
	countsAre(t, plegd, want)

	// A pod stops as the kubelet stops one, its containers first, and is removed
	// later; others go at once.
	members[20][1].Stop()
	made[20].Stop()
	died(made[20].ID, "")
	died(members[20][1].ID, members[20][1].code)
	agree("a pod has stopped")
	made[20].Remove()
	removed(made[20].ID)
	removed(members[20][0].ID)
	removed(members[20][1].ID)
	gone := []int{13, 15, 17}
	for _, i := range gone {
		for _, m := range members[i] {
			m.Stop()
		}
		made[i].Stop()
		made[i].Remove()
	}
	lab.Eventually(t, 8*time.Second, "the pods are gone", func() error {
		if now := counts(t, plegd); now.pods != was.pods+pods-4 {
			return fmt.Errorf("%d pods run", now.pods)
		}
		return nil
	})
	// A relist may have come between the stop and the removal, or not: then the
	// death is seen with the removal, and nothing is left to tell the code.
	events := plegd.Log.Events(logged)
	for _, i := range gone {
		died(made[i].ID, "")
		removed(made[i].ID)
		for _, m := range members[i] {
			code := ""
			for _, e := range events[m.ID] {
				if e.ExitCode != "" {
					code = m.code
				}
			}
			died(m.ID, code)
			removed(m.ID)
		}
	}
	agree("pods are removed")
	want.pods = was.pods + pods - 4
	want.running -= 1 + 2*len(gone)
	want.exited--
	countsAre(t, plegd, want)

	// Containers that end by themselves, at once and after a while.
	brief := made[1].RunContainer("brief", "--exit-code=7", "--after=1ms")
	later := made[3].RunContainer("later", "--exit-code=9", "--after=2500ms")
	add(&life{what: "brief", id: brief.ID, container: "brief", pod: made[1]})
	add(&life{what: "later", id: later.ID, container: "later", pod: made[3], events: []string{"ContainerStarted"}})
	lab.Eventually(t, 8*time.Second, "both have ended", func() error {
		if now := counts(t, plegd); now.exited != want.exited+2 {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	// The brief one may have run during a relist, or not.
	if e := plegd.Log.Events(logged)[brief.ID]; len(e) > 0 && e[0].Type == "ContainerStarted" {
		of[brief.ID].events = []string{"ContainerStarted"}
	}
	died(brief.ID, "7")
	died(later.ID, "9")
	agree("two have ended by themselves")
	want.exited += 2
	countsAre(t, plegd, want)

	eventsCounted(t, plegd, lives)
	if s, err := plegd.Status(); err != nil || s.State != healthy || s.Relist.Reinspect != 0 {
		t.Errorf("at the end: %+v %v, want it healthy and no pod to reinspect", s, err)
	}
	lab.Report(t, "pods truth: %d pods, %d containers and sandboxes, every event and exit code as it was", pods, len(lives))
}

// TestBetweenTwoRelists makes a pod and removes it while no relist looks: it
// must leave no trace.
func TestBetweenTwoRelists(t *testing.T) {
	t.Parallel()
	runtime := lab.NewRuntime(t)
	stays := runtime.RunPods(2, 1)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{Flags: []string{"--relist-period=10s"}})
	plegd.AwaitState(10*time.Second, healthy)
	was := counts(t, plegd)
	plegd.AwaitRelists(15*time.Second, 1)
	lab.Eventually(t, 5*time.Second, "the end of the relist", func() error {
		s, err := plegd.Status()
		if err == nil && s.Relist.InFlight != nil {
			err = fmt.Errorf("%s is under way", s.Relist.InFlight.Phase)
		}
		return err
	})
	// A relist has just ended, and the next one is 10 s away.
	logged := plegd.Log.Len()
	before := relists(t, plegd)
	start := time.Now()
	pod := runtime.RunPod()
	inside := pod.RunContainer("unseen")
	beside := stays[0].RunContainer("unseen")
	beside.Remove()
	pod.Stop()
	pod.Remove()
	if after := relists(t, plegd); after != before {
		t.Fatalf("%.0f relists while the pod lived for %s: the machine is too slow for this test", after-before, time.Since(start))
	}
	plegd.AwaitRelists(25*time.Second, 2)
	for id, events := range plegd.Log.Events(logged) {
		if events[0].Namespace == lab.Namespace {
			t.Errorf("events of %s: %v; want none at all (unseen were %s, %s, %s)", id, events, pod.ID, inside.ID, beside.ID)
		}
	}
	if now := counts(t, plegd); now != was {
		t.Errorf("counts are %+v, want %+v as before", now, was)
	}
	if s, err := plegd.Status(); err != nil || s.State != healthy || s.Relist.Reinspect != 0 {
		t.Errorf("at the end: %+v %v, want it healthy and no pod to reinspect", s, err)
	}
}

// compare compares what was done with the events in plegd's log. The kubelet
// does not deliver ContainerChanged; a log that has it is no liar.
func compare(lives []*life, got map[string][]lab.Event) error {
	known := make(map[string]bool)
	for _, l := range lives {
		known[l.id] = true
		var types []string
		for _, e := range got[l.id] {
			if e.Type == "ContainerChanged" {
				continue
			}
			types = append(types, e.String())
			if e.PodUID != l.pod.UID || e.Pod != l.pod.Name || e.Namespace != l.pod.Namespace ||
				e.Sandbox != l.sandbox || e.Container != l.container {
				return fmt.Errorf("%s: an event names it wrongly: %+v", l.what, e)
			}
		}
		if !slices.EqualFunc(types, l.events, sameEvent) {
			return fmt.Errorf("%s (%s): events are %v, want %v", l.what, l.id, types, l.events)
		}
	}
	for id, events := range got {
		// A runtime that is not the test's own has a life of its own.
		if !known[id] && events[0].Namespace == lab.Namespace {
			return fmt.Errorf("events of a stranger, %s: %v", id, events)
		}
	}
	return nil
}

// sameEvent compares an event with the wanted one, which may leave out an exit
// code that says nothing: a sandbox's, or that of something already gone.
func sameEvent(got, want string) bool {
	if strings.Contains(want, "(") {
		return got == want
	}
	got, _, _ = strings.Cut(got, "(")
	return got == want
}

// eventsCounted compares the counters with what was done.
func eventsCounted(t *testing.T, plegd *lab.Plegd, lives []*life) {
	t.Helper()
	want := make(map[string]float64)
	for _, l := range lives {
		for _, e := range l.events {
			kind, _, _ := strings.Cut(e, "(")
			want[kind]++
		}
	}
	m := plegd.MustMetrics()
	for kind, n := range want {
		if got, _ := m.Value("pleg_events_total", "type", kind); got < n {
			t.Errorf("pleg_events_total{type=%q} is %.0f, want %.0f", kind, got, n)
		}
	}
	for _, name := range []string{"pleg_discard_events_total", "pleg_reinspect_pods"} {
		if got, ok := m.Value(name); !ok || got != 0 {
			t.Errorf("%s is %.0f (there: %t), want 0", name, got, ok)
		}
	}
}

// tally is how many pods run and how many containers there are by state.
type tally struct{ pods, created, running, exited, unknown int }

// counts reads the tally from the metrics.
func counts(t *testing.T, plegd *lab.Plegd) tally {
	t.Helper()
	m := plegd.MustMetrics()
	value := func(name string, labels ...string) int {
		v, ok := m.Value(name, labels...)
		if !ok {
			t.Fatalf("there is no %s%v", name, labels)
		}
		return int(v)
	}
	const containers, state = "pleg_running_containers", "container_state"
	return tally{
		pods:    value("pleg_running_pods"),
		created: value(containers, state, "created"),
		running: value(containers, state, "running"),
		exited:  value(containers, state, "exited"),
		unknown: value(containers, state, "unknown"),
	}
}

// countsAre waits until the tally is this one, in the metrics and in the status.
func countsAre(t *testing.T, plegd *lab.Plegd, want tally) {
	t.Helper()
	lab.Eventually(t, 5*time.Second, "the counts are right", func() error {
		if got := counts(t, plegd); got != want {
			return fmt.Errorf("they are %+v, want %+v", got, want)
		}
		s, err := plegd.Status()
		if err != nil {
			return err
		}
		got := tally{
			created: s.Pods.Containers["created"], running: s.Pods.Containers["running"],
			exited: s.Pods.Containers["exited"], unknown: s.Pods.Containers["unknown"],
		}
		if s.Pods.Running != nil {
			got.pods = *s.Pods.Running
		}
		if got != want {
			return fmt.Errorf("in the status they are %+v, want %+v", got, want)
		}
		return nil
	})
}

// relists is how many relists have ended.
func relists(t *testing.T, plegd *lab.Plegd) float64 {
	t.Helper()
	m := plegd.MustMetrics()
	success, _ := m.Value("pleg_relists_total", "result", "success")
	failure, _ := m.Value("pleg_relists_total", "result", "failure")
	return success + failure
}
