package relist

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// hintLimit limits one early look at a pod, all its calls together: it stands
	// in the way of the next relist.
	hintLimit = time.Second
	// hintsPerPeriod is how many pods are looked at early between two relists:
	// in a burst the next relist is there soon, and costs the runtime less.
	hintsPerPeriod = 20
)

// podLister is a Runtime that lists one pod.
type podLister interface {
	PodLists(ctx context.Context, uid string) ([]*cri.Sandbox, []*cri.Container, error)
}

// hints are the pods that events ask to look at.
type hints struct {
	waiting   map[string]struct{}
	order     []string
	used      int // since the last relist
	of        uint64
	inspected []*Inspection // since the last relist
}

func (h *hints) add(uid string) {
	if _, ok := h.waiting[uid]; ok || len(h.order) >= hintsPerPeriod {
		return
	}
	h.waiting[uid] = struct{}{}
	h.order = append(h.order, uid)
}

// relistHinted looks at the pods that events ask for, until the next relist is
// due: that comes first.
func (l *Loop) relistHinted(ctx context.Context) {
	lister, ok := l.rt.(podLister)
	if !ok || l.cfg.Mode != Hint {
		return
	}
	for more := true; more; { // events come in bunches: one look for those of a pod
		select {
		case e := <-l.in:
			l.event(e)
		default:
			more = false
		}
	}
	if l.hints.of != l.now.Attempts {
		l.hints.of, l.hints.used = l.now.Attempts, 0
	}
	for _, uid := range l.hints.order {
		if ctx.Err() != nil || !time.Now().Before(l.due()) || l.hints.used >= hintsPerPeriod || l.now.Failures > 0 {
			break
		}
		l.hints.used++
		l.relistPod(ctx, lister, uid)
	}
	clear(l.hints.waiting)
	l.hints.order = l.hints.order[:0]
	l.noteAndPublish()
}

// relistPod is a relist of one pod. Whatever goes wrong with it is left to the
// next relist.
func (l *Loop) relistPod(ctx context.Context, lister podLister, uid string) {
	ctx, cancel := context.WithTimeout(ctx, min(hintLimit, l.cfg.Period))
	defer cancel()
	sandboxes, containers, err := lister.PodLists(ctx, uid)
	if err != nil {
		return
	}
	changed := l.records.compare(uid, sandboxes, containers)
	if len(changed) == 0 {
		return
	}
	var status *PodStatus
	if len(sandboxes)+len(containers) > 0 {
		j := &job{status: &PodStatus{}, inspection: &Inspection{UID: uid, Namespace: changed[0].namespace, Name: changed[0].podName}}
		for _, s := range sandboxes {
			j.sandboxes = append(j.sandboxes, s.ID)
		}
		for _, c := range containers {
			j.containers = append(j.containers, c.ID)
		}
		for range l.inspect(ctx, []*job{j}) {
			// one job, waited for
		}
		if j.inspection.Result() == nil || j.status.Err != nil {
			return
		}
		l.hints.inspected = append(l.hints.inspected, j.inspection)
		l.obs.InspectionDone(true)
		status = j.status
		l.cache.set(status)
	} else {
		l.cache.remove(uid)
	}
	l.trust.hinted(changed)
	for _, c := range changed {
		was := l.records.oldState(uid, c.id)
		l.records.lookedAt(c)
		for _, t := range eventsFor(was, c.state) {
			l.deliver(Event{
				Type: t, PodUID: uid, PodName: c.podName, PodNamespace: c.namespace, ID: c.id, Sandbox: c.sandbox != nil, Name: c.name,
			}, status)
		}
	}
}
