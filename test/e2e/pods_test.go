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

// lives are those of a test, by id.
type lives map[string]*life

func (l lives) add(one *life) { l[one.id] = one }

// died and removed add the events that must come of it; no code: nobody knows.
func (l lives) died(id, code string) {
	event := "ContainerDied"
	if code != "" {
		event += "(" + code + ")"
	}
	l[id].events = append(l[id].events, event)
}

func (l lives) removed(id string) { l[id].events = append(l[id].events, "ContainerRemoved") }

// member is a container with the code that it exits with when it is stopped.
type member struct {
	*lab.Container
	code string
}

// truth is what TestPodsTruth has made, and what plegd must say of it.
type truth struct {
	lives
	plegd     *lab.Plegd
	logged    int // lines of plegd's log before it
	made      []*lab.Pod
	members   [][]member
	was, want tally
}

// agree waits until plegd's events are those that must come of what was done.
func (w *truth) agree(t *testing.T, stage string) {
	t.Helper()
	lab.Eventually(t, 8*time.Second, stage+": the events agree with what was done", func() error {
		return compare(w.lives, w.plegd.Log.Events(w.logged))
	})
	countsAre(t, w.plegd, w.want)
}

// TestPodsTruth makes pods, ends some of their containers and removes some, and
// compares with what plegd says has happened: it must be exactly that.
func TestPodsTruth(t *testing.T) {
	t.Parallel()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{}).CRI(t)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(10*time.Second, 2)
	w := &truth{lives: lives{}, plegd: plegd, logged: plegd.Log.Len()}
	w.was = counts(t, plegd) // a runtime that is not the test's own has pods already
	w.make(t, runtime, 22)
	w.endSome(t)
	w.removeCreated(t)
	w.removePods(t)
	w.endByThemselves(t)

	eventsCounted(t, plegd, w.lives)
	if s, err := plegd.Status(); err != nil || s.State != healthy || s.Relist.Reinspect != 0 {
		t.Errorf("at the end: %+v %v, want it healthy and no pod to reinspect", s, err)
	}
	lab.Report(t, "pods truth: %d pods, %d containers and sandboxes, every event and exit code as it was", len(w.made), len(w.lives))
}

// make starts pods of two containers, each of which exits with a code of its own.
func (w *truth) make(t *testing.T, runtime *lab.CRI, pods int) {
	w.made, w.members = make([]*lab.Pod, pods), make([][]member, pods)
	lab.Two(pods, func(i int) {
		w.made[i] = runtime.RunPod()
		for n := range 2 {
			code := fmt.Sprint(1 + (i*2+n)%120)
			c := w.made[i].RunContainer(fmt.Sprintf("app-%d", n), "--exit-code="+code)
			w.members[i] = append(w.members[i], member{c, code})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for i, pod := range w.made {
		w.add(&life{what: pod.Name, id: pod.ID, pod: pod, sandbox: true, events: []string{"ContainerStarted"}})
		for _, m := range w.members[i] {
			w.add(&life{what: pod.Name + "/" + m.Name, id: m.ID, container: m.Name, pod: pod, events: []string{"ContainerStarted"}})
		}
	}
	w.want = w.was
	w.want.pods, w.want.running = w.was.pods+pods, w.was.running+2*pods
	w.agree(t, "all run")
}

// endSome ends a container in every second pod and removes some of the ended,
// and one that runs.
func (w *truth) endSome(t *testing.T) {
	pods := len(w.made)
	lab.Two(pods/2, func(i int) { w.members[2*i][0].Stop() })
	for i := 0; i < pods; i += 2 {
		w.died(w.members[i][0].ID, w.members[i][0].code)
	}
	w.want.running, w.want.exited = w.want.running-pods/2, w.want.exited+pods/2
	w.agree(t, "some have ended")

	for i := 0; i < 8; i += 2 {
		w.members[i][0].Remove()
		w.removed(w.members[i][0].ID)
	}
	w.members[9][1].Remove()
	w.died(w.members[9][1].ID, "")
	w.removed(w.members[9][1].ID)
	w.want.running, w.want.exited = w.want.running-1, w.want.exited-4
	w.agree(t, "some are removed")
}

// removeCreated removes a container that was never started. That is no event of
// the kubelet's, but a change; its removal is both its death and its removal.
func (w *truth) removeCreated(t *testing.T) {
	created := w.made[11].CreateContainer("never-started")
	w.want.created++
	countsAre(t, w.plegd, w.want)
	w.add(&life{what: "never-started", id: created.ID, container: "never-started", pod: w.made[11]})
	created.Remove()
	w.died(created.ID, "")
	w.removed(created.ID)
	w.want.created--
	w.agree(t, "a created one is removed")
}

// removePods stops a pod as the kubelet stops one, its containers first, and
// removes it later; others are removed at once.
func (w *truth) removePods(t *testing.T) {
	w.members[20][1].Stop()
	w.made[20].Stop()
	w.died(w.made[20].ID, "")
	w.died(w.members[20][1].ID, w.members[20][1].code)
	lab.Eventually(t, 8*time.Second, "the events of a pod that has stopped", func() error {
		return compare(w.lives, w.plegd.Log.Events(w.logged))
	})
	w.made[20].Remove()
	w.removed(w.made[20].ID)
	w.removed(w.members[20][0].ID)
	w.removed(w.members[20][1].ID)
	gone := []int{13, 15, 17}
	for _, i := range gone {
		for _, m := range w.members[i] {
			m.Stop()
		}
		w.made[i].Stop()
		w.made[i].Remove()
	}
	w.want.pods = w.was.pods + len(w.made) - 4
	lab.Eventually(t, 8*time.Second, "the pods are gone", func() error {
		if now := counts(t, w.plegd); now.pods != w.want.pods {
			return fmt.Errorf("%d pods run", now.pods)
		}
		return nil
	})
	// A relist may have come between the stop and the removal, or not: then the
	// death is seen with the removal, and nothing is left to give the code.
	events := w.plegd.Log.Events(w.logged)
	for _, i := range gone {
		w.died(w.made[i].ID, "")
		w.removed(w.made[i].ID)
		for _, m := range w.members[i] {
			code := ""
			for _, e := range events[m.ID] {
				if e.ExitCode != "" {
					code = m.code
				}
			}
			w.died(m.ID, code)
			w.removed(m.ID)
		}
	}
	w.want.running -= 1 + 2*len(gone)
	w.want.exited--
	w.agree(t, "pods are removed")
}

// endByThemselves starts containers that end by themselves, at once and after a
// while.
func (w *truth) endByThemselves(t *testing.T) {
	brief := w.made[1].RunContainer("brief", "--exit-code=7", "--after=1ms")
	later := w.made[3].RunContainer("later", "--exit-code=9", "--after=2500ms")
	w.add(&life{what: "brief", id: brief.ID, container: "brief", pod: w.made[1]})
	w.add(&life{what: "later", id: later.ID, container: "later", pod: w.made[3], events: []string{"ContainerStarted"}})
	w.want.exited += 2
	lab.Eventually(t, 8*time.Second, "both have ended", func() error {
		if now := counts(t, w.plegd); now.exited != w.want.exited {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	// The brief one may have run during a relist, or not.
	if e := w.plegd.Log.Events(w.logged)[brief.ID]; len(e) > 0 && e[0].Type == "ContainerStarted" {
		w.lives[brief.ID].events = []string{"ContainerStarted"}
	}
	w.died(brief.ID, "7")
	w.died(later.ID, "9")
	w.agree(t, "two have ended by themselves")
}

// compare compares what was done with the events in plegd's log. The kubelet
// does not deliver ContainerChanged; a log that has it is no liar.
func compare(lives lives, got map[string][]lab.Event) error {
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
// code without a meaning: a sandbox's, or that of something already gone.
func sameEvent(got, want string) bool {
	if strings.Contains(want, "(") {
		return got == want
	}
	got, _, _ = strings.Cut(got, "(")
	return got == want
}

// eventsCounted compares the counters with what was done.
func eventsCounted(t *testing.T, plegd *lab.Plegd, lives lives) {
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
	if got, ok := m.Value("pleg_discard_events_total"); !ok || got != 0 {
		t.Errorf("pleg_discard_events_total is %.0f (there: %t), want 0", got, ok)
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
