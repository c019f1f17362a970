package daemon

import (
	"cmp"
	"slices"

	"github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
)

// targets returns the containers, or the sandboxes, of the last lists that may be asked
// for: those of the sandboxes named first at first, then the newest. uid limits
// them to one pod, "" for all.
func (r *runtime) targets(sandboxes bool, uid string, first []string) []chain.Target {
	var out []chain.Target
	created := map[string]int64{}
	add := func(t chain.Target, pod string, at int64) {
		if uid == "" || pod == uid {
			out = append(out, t)
			created[t.ID] = at
		}
	}
	pods, containers := r.LastLists()
	if sandboxes {
		for _, s := range pods {
			t := chain.Target{Sandbox: true, ID: s.ID, SandboxID: s.ID, Namespace: s.Namespace, Pod: s.Name}
			add(t, s.PodUID, s.CreatedAt)
		}
	} else {
		for _, c := range containers {
			t := chain.Target{ID: c.ID, SandboxID: c.SandboxID, Namespace: c.PodNamespace, Pod: c.PodName, Container: c.Name}
			add(t, c.PodUID, c.CreatedAt)
		}
	}
	rank := func(t chain.Target) int {
		if slices.Contains(first, t.SandboxID) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b chain.Target) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(created[b.ID], created[a.ID]))
	})
	return out
}

// pod returns the namespace and name of the pod that a sandbox or container belongs to, ""
// where it is not known.
func (r *runtime) pod(id string) string {
	if namespace, name, _ := r.podOf(id); name != "" {
		return namespace + "/" + name
	}
	return ""
}

// podOf returns the pod that a sandbox or container of the last lists belongs to.
func (r *runtime) podOf(id string) (namespace, name, uid string) {
	sandboxes, containers := r.LastLists()
	for _, s := range sandboxes {
		if s.ID == id {
			return s.Namespace, s.Name, s.PodUID
		}
	}
	for _, c := range containers {
		if c.ID == id {
			return c.PodNamespace, c.PodName, c.PodUID
		}
	}
	return "", "", ""
}

// withPods returns the children with the pods that the stuck ones serve.
func (r *runtime) withPods(c *health.Children) *health.Children {
	if c == nil || len(c.Stuck) == 0 {
		return c
	}
	out := *c
	out.Stuck = slices.Clone(c.Stuck)
	for i := range out.Stuck {
		s := &out.Stuck[i]
		_, _, s.PodUID = r.podOf(s.Sandbox)
	}
	return &out
}
