package ledger

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// stopLimit is how long the network of a sandbox may stay after its end. A kubelet stops a sandbox that has ended within
// seconds, and removes one that is none of its pods' within a minute (kuberuntime_gc.go).
const stopLimit = time.Minute

// endingLimit is the same while the kubelet says that it ends pods: it has tried again by then.
const endingLimit = 30 * time.Second

// listsAnswered is the age of the last list up to which the runtime answers calls.
const listsAnswered = 5 * time.Second

// ended is a sandbox that has ended.
type ended struct {
	since time.Time // when it was first seen so
	// hasRun is set for one that was ready, or has containers: else it may yet be made.
	hasRun bool
	// isAsked is set once the runtime has said which network was made for it: "" for none.
	isAsked bool
	network string
}

// stops notes the sandboxes that have ended for long and whose network is still there: a stop takes it away, and that of a
// plugin that fails does not. The list shows such a sandbox as one that is stopped.
func (p *pass) stops(ctx context.Context) {
	listed := p.listed
	if listed == nil {
		return
	}
	p.noteEnded(listed)
	limit := stopLimit
	if p.EndsPods() {
		limit = endingLimit
	}
	budget := 0
	if p.moment.Sub(p.ListedAt()) < listsAnswered {
		budget = maxAsked
	}
	for id, sandbox := range p.ended {
		isOld := sandbox.hasRun && p.moment.Sub(sandbox.since) >= limit
		if isOld && !sandbox.isAsked && budget > 0 {
			budget--
			p.askNetwork(ctx, listed[id], sandbox)
		}
		if p.isThere(sandbox.network) {
			p.keepUnstopped(listed[id], sandbox)
		}
	}
}

// noteEnded notes the sandboxes that have ended, and those that are ready.
func (p *pass) noteEnded(listed map[string]*cri.Entry) {
	current := map[string]*ended{}
	ready := map[string]bool{}
	for id, e := range listed {
		switch {
		case !e.Sandbox:
		case e.State == cri.StateRunning:
			ready[id] = true
		case p.ended[id] != nil:
			current[id] = p.ended[id]
		default:
			current[id] = &ended{since: p.moment, hasRun: p.ready[id] || hasContainer(listed, id)}
		}
	}
	p.ended = current
	p.ready = ready
}

// askNetwork asks the runtime which network was made for a sandbox. Without an answer it is asked again.
func (p *pass) askNetwork(ctx context.Context, e *cri.Entry, sandbox *ended) {
	network, err := p.NetworkOf(ctx, e)
	if err != nil {
		return
	}
	sandbox.isAsked = true
	below, isInRun := strings.CutPrefix(network, "/var/run/") // a link to /run
	if isInRun {
		network = "/run/" + below
	}
	if strings.HasPrefix(network, namespaces+"/") { // else to look there may hang
		sandbox.network = network
	}
}

// isThere reports whether a network namespace is there for the runtime.
func (p *pass) isThere(network string) bool {
	if network == "" {
		return false
	}
	_, err := os.Lstat(proc.Path(p.Table.ProcFS, p.pids[0], "root") + network)
	p.unread.Add(networksOfPods, err)
	return err == nil
}

// keepUnstopped notes a sandbox whose network is still there.
func (p *pass) keepUnstopped(e *cri.Entry, sandbox *ended) {
	o := p.keep(obligation{identity: identity{kind: unstopped, id: idOf(e.ID)}, name: e.ID})
	o.begun = facts.Earliest(o.begun, sandbox.since)
	o.lost = facts.Link{
		Kind: facts.KindPod, Name: e.Pod(), RuntimeID: e.ID, State: facts.LinkFailing,
		Evidence: fmt.Sprintf("has ended, and its network namespace %s is still there: its stop fails, or nobody asks for it", sandbox.network),
	}
}
