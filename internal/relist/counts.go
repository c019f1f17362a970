package relist

import (
	"slices"

	"github.com/plegd/plegd/internal/cri"
)

// podCount is what a pod adds to the running counts.
type podCount struct {
	running    int // 1 or 0
	containers [cri.NumStates]int
}

// recount moves the running counts by the difference of what a pod's old status
// added and its new one adds; nil for a pod that is gone.
func (l *Loop) recount(uid string, status *PodStatus) {
	var c podCount
	if status != nil {
		if anyReady(status.Sandboxes) {
			c.running = 1
		}
		for _, s := range status.Containers {
			c.containers[s.State]++
		}
	}
	l.add(l.counted[uid], -1)
	l.add(c, 1)
	if status == nil {
		delete(l.counted, uid)
		return
	}
	l.counted[uid] = c
}

func (l *Loop) add(c podCount, sign int) {
	l.now.RunningPods += sign * c.running
	for state, n := range c.containers {
		l.now.Containers[state] += sign * n
	}
}

// count counts what the lists hold. While the loop relies on events it does so
// pod by pod, and believes an event that came during the lists more than them.
func (l *Loop) count() {
	l.now.Counted, l.now.RunningPods, l.now.Containers = true, l.records.runningPods, l.records.containers
	if !l.now.Evented {
		clear(l.counted)
		return
	}
	l.now.RunningPods, l.now.Containers = 0, [cri.NumStates]int{}
	old := l.counted
	l.counted = make(map[string]podCount, len(l.records.pods))
	for uid, p := range l.records.pods {
		c, told := old[uid]
		if !told || !slices.ContainsFunc(p.records, func(r *record) bool { return r.told == l.records.gen }) {
			c = p.count()
		}
		l.counted[uid] = c
		l.add(c, 1)
	}
}

// count counts what the lists hold of a pod.
func (p *podRecord) count() (c podCount) {
	for _, r := range p.records {
		switch {
		case r.cur == gone:
		case r.fromContainer != nil:
			c.containers[r.fromContainer.State]++
		case r.cur == running:
			c.running = 1
		}
	}
	return c
}
