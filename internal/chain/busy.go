package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// Busy returns the chain from a process that cannot remove a path: to the mount at that path, else to the
// process that has a file there or below open.
func (e *Explorer) Busy(ctx context.Context, d Debt, path string) facts.Chain {
	path = family.RunPath(path)
	c := e.begin(ctx, d, facts.LinkBusy)
	if len(c.Links) == 0 {
		return c // it has just ended
	}
	limited, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	mounts, err := e.table.Mounts(limited, d.Waiter)
	i := slices.IndexFunc(mounts, func(m proc.Mount) bool { return family.RunPath(m.Point) == path })
	switch {
	case i >= 0:
		m := mounts[i]
		c.Links = append(c.Links, facts.Link{
			Kind: facts.KindMount, Name: m.Point, State: facts.LinkBusy, Fingerprint: mountFingerprint(m.Type, m.Source),
			Evidence: fmt.Sprintf("%s on %s (%s) is mounted there", m.Type, m.Source, m.Device),
		})
	case err != nil:
		c.Unknown = "its table of mounts cannot be read: " + proc.Why(err)
	default:
		e.addUser(limited, &c, path)
	}
	e.finish(&c)
	return c
}

// addUser adds the only process that has a file at a path or below open.
func (e *Explorer) addUser(ctx context.Context, c *facts.Chain, path string) {
	pids, err := proc.Holders(ctx, e.procfs, func(_, _ int, target string) bool {
		used := family.RunPath(target)
		return used == path || strings.HasPrefix(used, path+"/")
	})
	var user proc.Process
	if len(pids) == 1 {
		user, _ = proc.ReadStat(e.procfs, pids[0]) // zero of one that has just ended
	}
	switch {
	case user.PID != 0:
		link := e.linkOf(ctx, user)
		link.State = facts.LinkBusy
		link.Evidence = "has a file open there"
		c.Links = append(c.Links, link)
	case err != nil:
		c.Unknown = "who uses it cannot be read: " + proc.Why(err)
	default:
		c.Unknown = fmt.Sprintf("nothing is mounted there in its mount namespace, and %d processes have a file open there", len(pids))
	}
}
