package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// firstStep is what to do about the culprit of a chain: of several helpers the last one, which has the pipe.
func firstStep(c *facts.Chain, culprit *facts.Link) string {
	who := culprit.Who()
	waiting := &facts.Link{} // the link that waits for the culprit
	if n := len(c.Links); n > 1 {
		waiting = &c.Links[n-2]
	}
	if c.Unknown != "" {
		if culprit.PID == 0 { // it may be any other one: no step that ends it
			return ""
		}
		step := fmt.Sprintf("See what %s waits for, which plegd cannot: %s", who, c.Unknown)
		if culprit.Kind == facts.KindHelper {
			step += fmt.Sprintf("; `kill %d` ends this last helper, and the runtime reports the error", culprit.PID)
		}
		return step + "."
	}
	if step := stateStep(culprit); step != "" {
		return step
	}
	if waiting.State == facts.LinkTraced {
		return fmt.Sprintf("%s traces %s: detach it there, or end the tracer; `kill -CONT` does nothing.",
			who, waiting.Who())
	}
	return processStep(c.Links, culprit, waiting)
}

// stateStep is the step for a culprit whose own state is the fault; "" for another one.
func stateStep(culprit *facts.Link) string {
	if culprit.Kind == facts.KindNode {
		return fmt.Sprintf("See why the server at %s does not answer: %s.", culprit.Name, culprit.Evidence)
	}
	if step := mountStateStep(culprit); culprit.Kind == facts.KindMount && step != "" {
		return step
	}
	if culprit.Kind == facts.KindFile {
		return fmt.Sprintf("Put the program back, as by installing its package again: %s. No restart of the runtime is needed.", culprit.Evidence)
	}
	if culprit.Kind == facts.KindCgroup && culprit.State != facts.LinkFrozen {
		return fmt.Sprintf("Raise the limit of the cgroup %s: %s.", culprit.Name, culprit.Evidence)
	}
	switch culprit.State {
	case facts.LinkStopped:
		return fmt.Sprintf("`kill -CONT %d` continues the stopped %s (%s) and with it all that waits.",
			culprit.PID, culprit.Kind, culprit.Name)
	case facts.LinkTraced, facts.LinkLoop:
		return fmt.Sprintf("Look at %s: it %s.", culprit.Who(), culprit.Evidence)
	case facts.LinkFrozen:
		return fmt.Sprintf("Thaw the cgroup %s: %s.", culprit.Name, thawCommands(culprit.Name))
	case facts.LinkBlocked:
		return fmt.Sprintf("Look at the %s %s: %s.", culprit.Kind, culprit.Name, culprit.Evidence)
	case facts.LinkEnded:
		if culprit.Kind == facts.KindShim {
			return fmt.Sprintf("Delete the pod of this %s, and the kubelet starts it again: %s.", culprit.Name, culprit.Evidence)
		}
	case facts.LinkBusy:
		return fmt.Sprintf("See what %s does there, and let it end or end it.", culprit.Who())
	}
	return ""
}

// mountStateStep is the step for a mount whose own state is the fault; "" for another one.
func mountStateStep(mount *facts.Link) string {
	switch mount.State {
	case facts.LinkFrozen:
		return fmt.Sprintf("Thaw the file system: `fsfreeze -u %s`.", mount.Name)
	case facts.LinkBusy:
		return fmt.Sprintf("Unmount what should not be there: `umount %s` (%s).", mount.Name, mount.Evidence)
	case facts.LinkFailing:
		return fmt.Sprintf("Make %s writable again (%s): free space or inodes, but not through the runtime, repair its file system, or mount it read-write. No restart of the runtime is needed.", mount.Name, mount.Evidence)
	case facts.LinkEnded:
		return fmt.Sprintf("Unmount it, `umount %s`, and mount it again, as by a restart of its CSI driver or FUSE daemon, not of the runtime: %s.", mount.Name, mount.Evidence)
	}
	return ""
}

// thawCommands are the commands that thaw a cgroup, of either version.
func thawCommands(cgroup string) string {
	return fmt.Sprintf("`echo 0 >/sys/fs/cgroup%[1]s/cgroup.freeze` (v1: `echo THAWED >/sys/fs/cgroup/freezer%[1]s/freezer.state`)", cgroup)
}

const (
	// opensFIFO is in the evidence of a process that waits for the other end of a FIFO.
	opensFIFO = " opens a FIFO "
	// keepsOpen is in the evidence of a process that waits for a pipe to be closed.
	keepsOpen = " keeps open"
	// connectionsOf is in that of one whose descriptors a client has used up.
	connectionsOf = " are connections of "
	// doesNotReap is in that of one whose ended children use up a limit of tasks.
	doesNotReap = "does not reap"
	// ofKernel is in that of one that waits for an event which no process sends.
	ofKernel = " message of the kernel"
	// limitOf is in that of a runtime with a limit that what it starts cannot run with.
	limitOf = "; its limit of "
)

// processStep is the step for a process that waits for no other one.
func processStep(links []facts.Link, culprit, waiting *facts.Link) string {
	who := culprit.Who()
	last := len(links) - 1
	mount := slices.IndexFunc(links, func(l facts.Link) bool { return l.Kind == facts.KindMount })
	locked := slices.IndexFunc(links[:last], func(l facts.Link) bool { return l.State == facts.LinkLocked })
	conmon := strings.HasPrefix(culprit.Name, "conmon")
	awaitsAnswer := waiting.State == facts.LinkPeer || waiting.State == facts.LinkUnanswered && waiting.PID != 0
	switch {
	case mount >= 0 && mount < last && culprit.Kind == facts.KindProcess:
		return mountStep(&links[mount], &links[mount+1], culprit)
	case strings.Contains(culprit.Evidence, opensFIFO):
		return fmt.Sprintf("Open the other end of the FIFO that %s waits for, or put a file in its place: %s.", who, culprit.Evidence)
	case culprit.Kind != facts.KindRuntime && strings.Contains(culprit.Evidence, doesNotReap):
		return fmt.Sprintf("Restart the service of %s, not the runtime: %s, %s. Its end frees them.", who, waiting.Evidence, culprit.Evidence)
	case strings.Contains(culprit.Evidence, limitOf):
		_, limits, _ := strings.Cut(culprit.Evidence, limitOf)
		return fmt.Sprintf("Raise the limit of %s, with `prlimit --pid %d` at once and in its unit for later: %s.", who, culprit.PID, limits)
	case locked >= 0:
		return fmt.Sprintf("See what %s does, and let it end or end it: %s: %s.", who, links[locked].Who(),
			links[locked].Evidence)
	case culprit.Kind == facts.KindHelper && strings.Contains(culprit.Evidence, ofKernel):
		return fmt.Sprintf("See which event %s waits for, and why that does not come: %s; `kill %d` ends this last helper, and the runtime reports the error.",
			who, culprit.Evidence, culprit.PID)
	case culprit.Kind == facts.KindHelper && culprit.State == facts.LinkRunning:
		return fmt.Sprintf("See what keeps %s busy: it %s.", who, culprit.Evidence)
	case culprit.Kind == facts.KindHelper:
		return fmt.Sprintf("See what %s waits for; `kill %d` ends this last helper, and the runtime reports the error.",
			who, culprit.PID)
	case culprit.Kind == facts.KindShim && culprit.State == facts.LinkUnread && !conmon:
		return fmt.Sprintf("`kill -9 %d` ends the shim that does not answer, and its pod with it, which is made again.",
			culprit.PID)
	case waiting.State == facts.LinkPeer && strings.Contains(waiting.Evidence, connectionsOf):
		return fmt.Sprintf("See why %s keeps its connections; its end frees them: %s.", who, waiting.Evidence)
	case waiting.State == facts.LinkPeer && strings.Contains(waiting.Evidence, keepsOpen):
		return fmt.Sprintf("See what %s is: %s. Its end closes the pipe, and the call returns that waits for it.",
			who, waiting.Evidence)
	case culprit.Kind == facts.KindProcess && awaitsAnswer:
		return fmt.Sprintf("Get %s to answer: %s. %s waits for it: %s.",
			who, culprit.Evidence, waiting.Who(), waiting.Evidence)
	}
	return ""
}

// mountStep is the step for the server of a mount, which may wait for the culprit.
func mountStep(mount, server, culprit *facts.Link) string {
	state := culprit.Evidence
	if server != culprit {
		state = "it waits for " + culprit.Who() + ": " + state
	}
	step := fmt.Sprintf("Get %s, which serves the mount %s, to answer: %s.", server.Who(), mount.Name, state)
	if mount.Fingerprint == "autofs" { // whose waits outlive the daemon
		return step
	}
	return step + " Its end releases all that waits for the mount."
}
