package health

import (
	"fmt"
	"slices"
)

// who names the process of a link.
func (l *Link) who() string { return fmt.Sprintf("pid %d (%s)", l.PID, l.Name) }

// firstStep is what to do about the culprit of a chain: of several helpers the last one, which has the pipe.
func firstStep(c *Chain, culprit *Link) string {
	who, before := culprit.who(), &Link{}
	if n := len(c.Links); n > 1 {
		before = &c.Links[n-2]
	}
	switch {
	case c.Unknown != "" && culprit.PID == 0: // it may be as well as any other: nothing that ends it
		return ""
	case c.Unknown != "":
		return fmt.Sprintf("See what %s waits for, which plegd cannot: %s.", who, c.Unknown)
	case culprit.State == LinkStopped:
		return fmt.Sprintf("`kill -CONT %d` continues the stopped %s (%s) and with it all that waits.",
			culprit.PID, culprit.Kind, culprit.Name)
	case culprit.State == LinkTraced, culprit.State == LinkLoop:
		return fmt.Sprintf("Look at %s: it %s.", who, culprit.Evidence)
	case culprit.State == LinkFrozen && culprit.Kind == KindMount:
		return fmt.Sprintf("Thaw the file system: `fsfreeze -u %s`.", culprit.Name)
	case culprit.State == LinkFrozen:
		return fmt.Sprintf("Thaw the cgroup %s.", culprit.Name)
	case culprit.State == LinkBlocked:
		return fmt.Sprintf("Look at the %s %s: %s.", culprit.Kind, culprit.Name, culprit.Evidence)
	case culprit.State == LinkMemory, culprit.State == LinkThrottled:
		return fmt.Sprintf("Raise the limit of the cgroup %s: %s.", culprit.Name, culprit.Evidence)
	case before.State == LinkTraced:
		return fmt.Sprintf("%s traces %s: detach it there, or end the tracer; `kill -CONT` does nothing.",
			who, before.who())
	}
	return processStep(c.Links, culprit, before)
}

// processStep is the step for a process that waits for no other one.
func processStep(links []Link, culprit, before *Link) string {
	who, last := culprit.who(), len(links)-1
	mount := slices.IndexFunc(links, func(l Link) bool { return l.Kind == KindMount })
	locked := slices.IndexFunc(links[:last], func(l Link) bool { return l.State == LinkLocked })
	switch {
	case mount >= 0 && mount < last && culprit.Kind == KindProcess:
		server, state := &links[mount+1], culprit.Evidence
		if server != culprit {
			state = "it waits for " + who + ": " + state
		}
		return fmt.Sprintf("Get %s, which serves the mount %s, to answer: %s. "+
			"Its end releases all that waits for the mount.", server.who(), links[mount].Name, state)
	case locked >= 0:
		return fmt.Sprintf("See what %s does, and let it end or end it: %s: %s.", who, links[locked].who(),
			links[locked].Evidence)
	case culprit.Kind == KindHelper:
		return fmt.Sprintf("See what %s waits for; `kill %d` ends this last helper, and the runtime reports the error.",
			who, culprit.PID)
	case culprit.Kind == KindShim && culprit.State == LinkUnread:
		return fmt.Sprintf("`kill -9 %d` ends the shim that does not answer, and its pod with it, which is made again.",
			culprit.PID)
	case culprit.Kind == KindProcess && before.State == LinkPeer:
		return fmt.Sprintf("Get %s to answer: %s. %s waits for it: %s.",
			who, culprit.Evidence, before.who(), before.Evidence)
	}
	return ""
}
