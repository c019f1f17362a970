package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// wordStacks stands for the process that writes its goroutine stacks on SIGUSR1: cri-dockerd writes none.
const wordStacks = "{stacks}"

// nodeSteps puts this node's values in the place of the words of a step, so that it can be
// pasted as it is, also where two runtimes run. Where a value is not known, and in a page,
// which is about no node in particular, the word has a generic one.
func nodeSteps(f *facts.Facts, chain []facts.Link) *strings.Replacer {
	e := &f.Evidence
	p, cgroup, storage := cmp.Or(e.Process, &facts.Process{}), cmp.Or(e.Cgroup, &facts.Cgroup{}).Path, cmp.Or(e.Storage, &facts.Storage{})
	socket, blocked, directory := cmp.Or(f.Endpoint.Path, "SOCKET"), "PID/task/TID", "DIRECTORY"
	if cgroup == "/" {
		cgroup = ""
	}
	if len(p.Blocked) > 0 { // the thread in D that RuntimeStorageStall is about
		longest := slices.MinFunc(p.Blocked, func(a, b facts.BlockedThread) int { return a.Since.Compare(b.Since) })
		blocked = fmt.Sprintf("%d/task/%d", p.PID, longest.TID)
	}
	if len(storage.FileSystems) > 0 {
		directory = cmp.Or(storage.Lacking(facts.StorageStill), &storage.FileSystems[0]).Directory
	}
	// subject is the process of that kind in the wait chain, else the reason's subject.
	subject := func(reason string, kind facts.LinkKind, generic string) string {
		if i := slices.IndexFunc(chain, func(l facts.Link) bool { return l.Kind == kind && l.PID > 0 }); i >= 0 {
			return strconv.Itoa(chain[i].PID)
		}
		pid := Subject(f, reason)
		return pidText(pid, generic)
	}
	return strings.NewReplacer(
		"{pid}", pidText(p.LivePID(), "PID"), "{unit}", cmp.Or(unit(f), "UNIT"), "{socket}", socket,
		"{crictl}", "crictl -r unix://"+socket, // its default may be another runtime's
		"{cgroup}", cmp.Or(cgroup, "/CGROUP"), // the runtime's, or the frozen one above it
		wordStacks, pidText(stacksPID(f), "DAEMON"),
		"{other}", subject(RuntimeSocketTakenOver, "", "OTHER"), // took the socket over
		"{holder}", pidText(cmp.Or(p.Lock, &facts.LockWait{}).HolderPID, "HOLDER"), // of the file lock
		"{blocked}", blocked, "{storage}", directory,
		"{shim}", subject(ShimStuck, facts.KindShim, "PID"), "{helper}", subject(RuntimeHelperStuck, facts.KindHelper, "PID"))
}

// pidText is a pid as a step has it, or a generic word where it is not known.
func pidText(pid int, generic string) string {
	if pid <= 0 {
		return generic
	}
	return strconv.Itoa(pid)
}

// Generic returns a step or a Next with generic values, as a page has it: PID, UNIT, SOCKET.
func Generic(step string) string { return nodeSteps(new(facts.Facts), nil).Replace(step) }

// writesStacks are the programs that write their goroutine stacks on SIGUSR1: it ends others.
var writesStacks = map[string]bool{"containerd": true, "crio": true, "dockerd": true}

// stacksPID returns the first process on a call's way that writes its goroutine stacks on SIGUSR1, 0 for none.
func stacksPID(f *facts.Facts) int {
	for _, h := range append([]facts.Hop{f.Evidence.Hop}, f.Evidence.Hops...) {
		if h.Process.LivePID() != 0 && writesStacks[h.Process.Comm] {
			return h.Process.PID
		}
	}
	return 0
}

// usualUnits are the units of runtimes whose cgroup names none, by the names that they report.
var usualUnits = map[string]string{"containerd": "containerd", "cri-o": "crio", "docker": "docker"}

// unit is the runtime's systemd unit, "" while that is not known.
func unit(f *facts.Facts) string {
	if c := f.Evidence.Cgroup; c != nil {
		for part := range strings.SplitSeq(c.Path, "/") {
			if name, ok := strings.CutSuffix(part, ".service"); ok {
				return name
			}
		}
	}
	return usualUnits[f.Runtime.Name]
}

// steps are the steps of the verdict's primary reason with the node's own values; nil where there is none.
func stepsOf(v *facts.Verdict, f *facts.Facts) []string {
	if v.Reason == "" {
		return nil
	}
	f = f.At(v.Hop)
	node, out := nodeSteps(f, v.Chain), []string{}
	for _, s := range reasonOf(v.Reason).Steps {
		if !strings.Contains(s, wordStacks) || f.Evidence.Process.LivePID() == 0 || stacksPID(f) != 0 {
			out = append(out, node.Replace(s))
		}
	}
	if h := &f.Evidence.Hop; h.Caution != "" {
		out = append(out, h.Caution)
	}
	return out
}
