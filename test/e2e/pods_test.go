//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// life is one container or sandbox, and the events that plegd must report of it.
type life struct {
	container string // "" for a sandbox
	pod       *runtime.Pod
	events    []string
}

// truth is the work of TestPodsTruth.
type truth struct {
	plegd *lab.Plegd
	lives map[string]*life // by id
	pods  []*runtime.Pod
	// members are the containers of each pod.
	members [][]*runtime.Container
	// want are the running pods, and the containers by state.
	want map[string]int
}

func (w *truth) begins(id string, pod *runtime.Pod, container string) {
	w.lives[id] = &life{container: container, pod: pod, events: []string{"ContainerStarted"}}
}

func (w *truth) died(id string) { w.lives[id].events = append(w.lives[id].events, "ContainerDied") }

func (w *truth) removed(id string) {
	w.lives[id].events = append(w.lives[id].events, "ContainerRemoved")
}

// agree waits until plegd's events and counts are the wanted ones.
func (w *truth) agree(t *testing.T, stage string) {
	t.Helper()
	lab.Eventually(t, 8*time.Second, stage+": the events", w.compare)
	lab.Eventually(t, 5*time.Second, stage+": the counts", func() error {
		s, err := w.plegd.Status()
		if err != nil || s.LastSeen == nil {
			return fmt.Errorf("no pods are counted: %w", err)
		}
		for what, want := range w.want {
			got := s.Pods.Containers[what]
			if what == "pods" {
				got = s.Pods.Running
			}
			if got != want {
				return fmt.Errorf("%d %s, want %d: %+v", got, what, want, s.Pods)
			}
		}
		return nil
	})
}

// compare compares the events in plegd's log with those that must come. The kubelet does
// not deliver ContainerChanged.
func (w *truth) compare() error {
	got := w.plegd.Log.Events(0)
	for id, l := range w.lives {
		var types []string
		for _, e := range got[id] {
			if e.Type == "ContainerChanged" {
				continue
			}
			types = append(types, e.Type)
			if e.PodUID != l.pod.UID || e.Pod != l.pod.Name || e.Namespace != l.pod.Namespace || e.Sandbox != (l.container == "") || e.Container != l.container {
				return fmt.Errorf("%s/%s: an event names it wrongly: %+v", l.pod.Name, l.container, e)
			}
		}
		if !slices.Equal(types, l.events) {
			return fmt.Errorf("%s/%s (%s): events are %v, want %v", l.pod.Name, l.container, id, types, l.events)
		}
	}
	for id, events := range got {
		if w.lives[id] == nil {
			return fmt.Errorf("events of an unknown container, %s: %v", id, events)
		}
	}
	return nil
}

// TestPodsTruth makes pods, ends some of their containers and removes some, and requires
// that plegd reports exactly that.
func TestPodsTruth(t *testing.T) {
	t.Parallel()
	runtime := runtime.NewContainerd(t, runtime.ContainerdOptions{})
	s := watched(t, runtime)
	w := &truth{plegd: s.plegd, lives: map[string]*life{}}
	w.make(t, runtime.CRI(t), 22)
	w.endSome(t)
	w.removePods(t)
	w.endAlone(t)

	counted := map[string]float64{}
	for _, l := range w.lives {
		for _, e := range l.events {
			kind, _, _ := strings.Cut(e, "(")
			counted[kind]++
		}
	}
	m := s.plegd.MustMetrics()
	for kind, n := range counted {
		if got, _ := m.Value("pleg_events_total", "type", kind); got != n {
			t.Errorf("pleg_events_total{type=%q} is %.0f, want %.0f", kind, got, n)
		}
	}
	s.checkMetrics(t, map[string]float64{"pleg_discard_events_total": 0, "pleg_running_pods": float64(w.want["pods"])})
	if status, err := s.plegd.Status(); err != nil || !well(status) || status.Relist.Reinspect != 0 {
		t.Errorf("at the end: %+v %v, want it healthy and no pod to reinspect", status, err)
	}
}

// make starts pods of two containers.
func (w *truth) make(t *testing.T, cri *runtime.CRI, pods int) {
	w.pods, w.members = make([]*runtime.Pod, pods), make([][]*runtime.Container, pods)
	cri.AtOnce(2, pods, func(i int) {
		w.pods[i] = cri.RunPod()
		for n := range 2 {
			w.members[i] = append(w.members[i], w.pods[i].RunContainer(fmt.Sprintf("app-%d", n)))
		}
	})
	for i, pod := range w.pods {
		w.begins(pod.ID, pod, "")
		for _, m := range w.members[i] {
			w.begins(m.ID, pod, m.Name)
		}
	}
	w.want = map[string]int{"pods": pods, "running": 2 * pods, "exited": 0, "created": 0}
	w.agree(t, "all run")
}

// endSome ends a container in every second pod, and removes some of the ended, one that
// runs, and one that was never started: that is no event of the kubelet's, but a change;
// its removal is both its death and its removal.
func (w *truth) endSome(t *testing.T) {
	pods := len(w.pods)
	runtime.Two(pods/2, func(i int) { w.members[2*i][0].Stop() })
	for i := 0; i < pods; i += 2 {
		w.died(w.members[i][0].ID)
	}
	w.want["running"], w.want["exited"] = w.want["running"]-pods/2, pods/2
	w.agree(t, "some have ended")

	for i := 0; i < 8; i += 2 {
		w.members[i][0].Remove()
		w.removed(w.members[i][0].ID)
	}
	w.members[9][1].Remove()
	w.died(w.members[9][1].ID)
	w.removed(w.members[9][1].ID)
	w.want["running"], w.want["exited"] = w.want["running"]-1, w.want["exited"]-4
	created := w.pods[11].CreateContainer("never-started")
	w.lives[created.ID] = &life{container: "never-started", pod: w.pods[11]}
	w.want["created"] = 1
	w.agree(t, "some are removed, one is created")
	created.Remove()
	w.died(created.ID)
	w.removed(created.ID)
	w.want["created"] = 0
	w.agree(t, "the created one is removed")
}

// removePods stops a pod as the kubelet stops one, its containers first, and removes it
// later; others are removed at once.
func (w *truth) removePods(t *testing.T) {
	w.members[20][1].Stop()
	w.pods[20].Stop()
	w.died(w.pods[20].ID)
	w.died(w.members[20][1].ID)
	lab.Eventually(t, 8*time.Second, "the events of a pod that has stopped", w.compare)
	w.pods[20].Remove()
	for _, id := range []string{w.pods[20].ID, w.members[20][0].ID, w.members[20][1].ID} {
		w.removed(id)
	}
	gone := []int{13, 15, 17}
	for _, i := range gone {
		w.members[i][0].Stop()
		w.members[i][1].Stop()
		w.pods[i].Stop()
		w.pods[i].Remove()
	}
	w.want["pods"] -= 1 + len(gone)
	lab.Eventually(t, 8*time.Second, "the pods are gone", func() error {
		s, err := w.plegd.Status()
		if err == nil && s.Pods.Running != w.want["pods"] {
			err = fmt.Errorf("%d pods run", s.Pods.Running)
		}
		return err
	})
	for _, i := range gone {
		w.died(w.pods[i].ID)
		w.removed(w.pods[i].ID)
		for _, m := range w.members[i] {
			w.died(m.ID)
			w.removed(m.ID)
		}
	}
	w.want["running"] -= 1 + 2*len(gone)
	w.want["exited"]--
	w.agree(t, "pods are removed")
}

// endAlone starts containers that end without a call, at once and after a while.
func (w *truth) endAlone(t *testing.T) {
	brief := w.pods[1].RunContainer("brief", "--after=1ms")
	later := w.pods[3].RunContainer("later", "--after=2500ms")
	w.begins(brief.ID, w.pods[1], "brief")
	w.begins(later.ID, w.pods[3], "later")
	w.want["exited"] += 2
	lab.Eventually(t, 8*time.Second, "both have ended", func() error {
		s, err := w.plegd.Status()
		if err == nil && s.Pods.Containers["exited"] != w.want["exited"] {
			err = fmt.Errorf("%+v", s.Pods)
		}
		return err
	})
	// The brief one may have run during a relist, or not.
	if e := w.plegd.Log.Events(0)[brief.ID]; len(e) > 0 && e[0].Type != "ContainerStarted" {
		w.lives[brief.ID].events = nil
	}
	w.died(brief.ID)
	w.died(later.ID)
	w.agree(t, "two have ended alone")
}
