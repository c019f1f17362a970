package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// firstStep is what to do about the culprit of a chain: of several helpers the last one, which has the pipe.
func firstStep(c *facts.Chain, culprit *facts.Link) string {
	who, before := culprit.Who(), &facts.Link{}
	if n := len(c.Links); n > 1 {
		before = &c.Links[n-2]
	}
	switch {
	case c.Unknown != "" && culprit.PID == 0: // it may be as well as any other: nothing that ends it
		return ""
	case c.Unknown != "":
		return fmt.Sprintf("See what %s waits for, which plegd cannot: %s.", who, c.Unknown)
	case culprit.State == facts.LinkStopped:
		return fmt.Sprintf("`kill -CONT %d` continues the stopped %s (%s) and with it all that waits.",
			culprit.PID, culprit.Kind, culprit.Name)
	case culprit.State == facts.LinkTraced, culprit.State == facts.LinkLoop:
		return fmt.Sprintf("Look at %s: it %s.", who, culprit.Evidence)
	case culprit.State == facts.LinkFrozen && culprit.Kind == facts.KindMount:
		return fmt.Sprintf("Thaw the file system: `fsfreeze -u %s`.", culprit.Name)
	case culprit.State == facts.LinkFrozen:
		return fmt.Sprintf("Thaw the cgroup %s.", culprit.Name)
	case culprit.State == facts.LinkBlocked:
		return fmt.Sprintf("Look at the %s %s: %s.", culprit.Kind, culprit.Name, culprit.Evidence)
	case culprit.State == facts.LinkMemory, culprit.State == facts.LinkThrottled:
		return fmt.Sprintf("Raise the limit of the cgroup %s: %s.", culprit.Name, culprit.Evidence)
	case before.State == facts.LinkTraced:
		return fmt.Sprintf("%s traces %s: detach it there, or end the tracer; `kill -CONT` does nothing.",
			who, before.Who())
	}
	return processStep(c.Links, culprit, before)
}

// keepsOpen is in the evidence of a process that waits for a pipe to be closed.
const keepsOpen = " keeps open"

// processStep is the step for a process that waits for no other one.
func processStep(links []facts.Link, culprit, before *facts.Link) string {
	who, last := culprit.Who(), len(links)-1
	mount := slices.IndexFunc(links, func(l facts.Link) bool { return l.Kind == facts.KindMount })
	locked := slices.IndexFunc(links[:last], func(l facts.Link) bool { return l.State == facts.LinkLocked })
	switch {
	case mount >= 0 && mount < last && culprit.Kind == facts.KindProcess:
		server, state := &links[mount+1], culprit.Evidence
		if server != culprit {
			state = "it waits for " + who + ": " + state
		}
		return fmt.Sprintf("Get %s, which serves the mount %s, to answer: %s. "+
			"Its end releases all that waits for the mount.", server.Who(), links[mount].Name, state)
	case locked >= 0:
		return fmt.Sprintf("See what %s does, and let it end or end it: %s: %s.", who, links[locked].Who(),
			links[locked].Evidence)
	case culprit.Kind == facts.KindHelper:
		return fmt.Sprintf("See what %s waits for; `kill %d` ends this last helper, and the runtime reports the error.",
			who, culprit.PID)
	case culprit.Kind == facts.KindShim && culprit.State == facts.LinkUnread && !strings.HasPrefix(culprit.Name, "conmon"):
		return fmt.Sprintf("`kill -9 %d` ends the shim that does not answer, and its pod with it, which is made again.",
			culprit.PID)
	case before.State == facts.LinkPeer && strings.Contains(before.Evidence, keepsOpen):
		return fmt.Sprintf("See what %s is: %s. Its end closes the pipe, and the call returns that waits for it.",
			who, before.Evidence)
	case culprit.Kind == facts.KindProcess && before.State == facts.LinkPeer:
		return fmt.Sprintf("Get %s to answer: %s. %s waits for it: %s.",
			who, culprit.Evidence, before.Who(), before.Evidence)
	}
	return ""
}
