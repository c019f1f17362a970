package chain

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// Debt is something that one process is owed by another, as it is seen without a call that hangs.
type Debt struct {
	Waiter, Debtor int       // processes
	Evidence       string    // how the first waits for the second
	Begun          time.Time // when it was first seen
	// IsHelper is set where the debtor is a child that may run for long, and counts as a helper.
	IsHelper bool
	// RuntimePID is the runtime's process, DaemonPID dockerd's behind it; 0 while unknown.
	RuntimePID, DaemonPID int
	// Pod returns the namespace and name of the pod of an id, "" where it is not known.
	Pod func(id string) string
}

// Owed returns the chain from the process that waits, by way of the one that owes it, to the culprit.
func (e *Explorer) Owed(ctx context.Context, d Debt) facts.Chain {
	c := e.begin(ctx, d, facts.LinkPeer)
	if len(c.Links) == 0 {
		return c // it has just ended
	}
	e.follow(ctx, &c, d.Debtor)
	e.finish(&c)
	return c
}

// Unanswered returns the chain from the process that waits for an answer of the server at an address, to the
// culprit: a process of the node, or else the server itself.
func (e *Explorer) Unanswered(ctx context.Context, d Debt, address string) facts.Chain {
	c := e.begin(ctx, d, facts.LinkUnanswered)
	if len(c.Links) == 0 {
		return c // it has just ended
	}
	if d.Debtor != 0 {
		e.follow(ctx, &c, d.Debtor)
	} else {
		c.Links = append(c.Links, serverElsewhere(address, "its server is not seen in this network namespace"))
	}
	e.finish(&c)
	return c
}

// serverElsewhere is the link of a server of which no process is known.
func serverElsewhere(address, evidence string) facts.Link {
	return facts.Link{Kind: facts.KindNode, Name: address, State: facts.LinkUnanswered, Evidence: evidence}
}

// Gone returns the chain from the process that was connected to a socket to the server there, which has ended.
func (e *Explorer) Gone(ctx context.Context, d Debt, socket string) facts.Chain {
	c := e.begin(ctx, d, facts.LinkUnanswered)
	if len(c.Links) == 0 {
		return c // it has just ended
	}
	c.Links = append(c.Links, serverElsewhere(socket, "it has ended, and nobody listens there"))
	e.finish(&c)
	return c
}

// begin returns a chain with the process that waits, in a state; an empty one where it has ended.
func (e *Explorer) begin(ctx context.Context, d Debt, state facts.LinkState) facts.Chain {
	e.symptom = Symptom{
		Symptom:    facts.Symptom{Process: d.Waiter, Since: d.Begun},
		RuntimePID: d.RuntimePID, DaemonPID: d.DaemonPID, Pod: d.Pod,
	}
	if d.IsHelper {
		e.symptom.Helper = d.Debtor
	}
	c := facts.Chain{At: time.Now()}
	waiter, err := proc.ReadStat(e.procfs, d.Waiter)
	if err != nil {
		return c
	}
	link := e.linkOf(ctx, waiter)
	if d.Waiter == d.RuntimePID {
		link.Kind = facts.KindRuntime
	}
	link.State = state
	link.Evidence = d.Evidence
	link.Since = d.Begun
	c.Links = append(c.Links, link)
	return c
}
