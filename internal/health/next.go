package health

import (
	"fmt"
	"slices"
)

// firstStep is what to do about the culprit of a chain. It ends no process that the chain
// calls idle, and of several helpers the last one, which has the pipe.
func firstStep(c *Chain, culprit *Link) string {
	who := fmt.Sprintf("pid %d (%s)", culprit.PID, culprit.Name)
	if c.Unknown != "" { // it may be as well as any other: nothing that ends it
		if culprit.PID == 0 {
			return ""
		}
		return fmt.Sprintf("See what %s waits for, which plegd cannot: %s.", who, c.Unknown)
	}
	before := &Link{}
	if n := len(c.Links); n > 1 {
		before = &c.Links[n-2]
	}
	switch culprit.State {
	case LinkStopped:
		return fmt.Sprintf("`kill -CONT %d` continues the stopped %s (%s) and with it all that waits.",
			culprit.PID, culprit.Kind, culprit.Name)
	case LinkTraced, LinkLoop:
		return fmt.Sprintf("Look at %s: it %s.", who, culprit.Evidence)
	case LinkFrozen:
		if culprit.Kind == KindMount {
			return fmt.Sprintf("Thaw the file system: `fsfreeze -u %s`.", culprit.Name)
		}
		return fmt.Sprintf("Thaw the cgroup %s.", culprit.Name)
	case LinkBlocked:
		return fmt.Sprintf("Look at the %s %s: %s.", culprit.Kind, culprit.Name, culprit.Evidence)
	case LinkMemory, LinkThrottled:
		return fmt.Sprintf("Raise the limit of the cgroup %s: %s.", culprit.Name, culprit.Evidence)
	}
	if before.State == LinkTraced {
		return fmt.Sprintf("%s traces pid %d (%s): detach it there, or end the tracer; `kill -CONT` does nothing.",
			who, before.PID, before.Name)
	}
	if step := mountStep(c, culprit, who); step != "" {
		return step
	}
	return processStep(c, culprit, before, who)
}

// mountStep is the step for the server of a mount, "" where the chain has none.
func mountStep(c *Chain, culprit *Link, who string) string {
	i := slices.IndexFunc(c.Links, func(l Link) bool { return l.Kind == KindMount })
	if i < 0 || i+1 >= len(c.Links) || culprit.Kind != KindProcess {
		return ""
	}
	server := &c.Links[i+1]
	state := culprit.Evidence
	if server != culprit {
		state = "it waits for " + who + ": " + state
	}
	return fmt.Sprintf("Get pid %d (%s), which serves the mount %s, to answer: %s. "+
		"Its end releases all that waits for the mount.", server.PID, server.Name, c.Links[i].Name, state)
}

// processStep is the step for a process that waits for no other one.
func processStep(c *Chain, culprit, before *Link, who string) string {
	for i := range c.Links {
		if l := &c.Links[i]; l.State == LinkLocked && i < len(c.Links)-1 {
			return fmt.Sprintf("See what %s does, and let it end or end it: pid %d (%s): %s.", who, l.PID, l.Name, l.Evidence)
		}
	}
	switch {
	case culprit.Kind == KindHelper:
		return fmt.Sprintf("See what %s waits for; `kill %d` ends this last helper, and the runtime reports the error.",
			who, culprit.PID)
	case culprit.Kind == KindShim && culprit.State == LinkUnread:
		return fmt.Sprintf("`kill -9 %d` ends the shim that does not answer, and its pod with it, which is made again.",
			culprit.PID)
	case culprit.Kind == KindProcess && before.State == LinkPeer:
		return fmt.Sprintf("Get %s to answer: %s. pid %d (%s) waits for it: %s.",
			who, culprit.Evidence, before.PID, before.Name, before.Evidence)
	}
	return ""
}
