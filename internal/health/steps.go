package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wordStacks stands for the process that writes its goroutine stacks on SIGUSR1:
// cri-dockerd writes none.
const wordStacks = "{stacks}"

// words stand for this node's values in a step, so that it can be pasted as it is, also
// where two runtimes run. A page, which is about no node in particular, has generic instead,
// and so has a step whose value is not known.
var words = []struct {
	word, generic string
	value         func(f *Facts, chain []Link) string
}{
	{"{pid}", "PID", func(f *Facts, _ []Link) string { return pidText(f.Evidence.Process.pid()) }},
	{"{unit}", "UNIT", func(f *Facts, _ []Link) string { return f.unit() }},
	{"{socket}", "SOCKET", func(f *Facts, _ []Link) string { return f.Endpoint.Path }},
	// crictl with that socket: its default may be another runtime's.
	{"{crictl}", "crictl -r unix://SOCKET", func(f *Facts, _ []Link) string {
		if f.Endpoint.Path == "" {
			return ""
		}
		return "crictl -r unix://" + f.Endpoint.Path
	}},
	{"{cgroup}", "/CGROUP", func(f *Facts, _ []Link) string { // the runtime's, or the frozen one above it
		if c := f.Evidence.Cgroup; c != nil && c.Path != "/" {
			return c.Path
		}
		return ""
	}},
	{wordStacks, "DAEMON", func(f *Facts, _ []Link) string { return pidText(f.stacksPID()) }},
	{"{other}", "OTHER", subject(RuntimeSocketTakenOver, "")}, // took the socket over
	{"{holder}", "HOLDER", func(f *Facts, _ []Link) string { // of the file lock
		if p := f.Evidence.Process; p != nil && p.Lock != nil {
			return pidText(p.Lock.HolderPID)
		}
		return ""
	}},
	{"{blocked}", "PID/task/TID", func(f *Facts, _ []Link) string { return f.blockedThread() }},
	{"{storage}", "DIRECTORY", func(f *Facts, _ []Link) string { // whose file system lacks something
		if s := f.Evidence.Storage; s != nil && len(s.FileSystems) > 0 {
			return cmp.Or(s.lacking(storageStill), &s.FileSystems[0]).Directory
		}
		return ""
	}},
	{"{shim}", "PID", subject(ShimStuck, KindShim)},
	{"{helper}", "PID", subject(RuntimeHelperStuck, KindHelper)},
}

// subject returns the process of that kind in the wait chain, else the reason's subject.
func subject(reason string, kind LinkKind) func(*Facts, []Link) string {
	return func(f *Facts, chain []Link) string {
		for _, l := range chain {
			if l.Kind == kind && l.PID > 0 {
				return pidText(l.PID)
			}
		}
		pid, _ := Subject(f, reason)
		return pidText(pid)
	}
}

// pidText is a pid as a step has it, "" where it is not known.
func pidText(pid int) string {
	if pid <= 0 {
		return ""
	}
	return strconv.Itoa(pid)
}

// nodeSteps replaces the words by the node's values from the facts and the wait chain.
func (f *Facts) nodeSteps(chain []Link) *strings.Replacer {
	var pairs []string
	for _, w := range words {
		pairs = append(pairs, w.word, cmp.Or(w.value(f, chain), w.generic))
	}
	return strings.NewReplacer(pairs...)
}

// Generic returns a step or a Next with generic values, as a page has it: PID, UNIT, SOCKET.
func Generic(step string) string { return new(Facts).nodeSteps(nil).Replace(step) }

// writesStacks are the programs that write their goroutine stacks on SIGUSR1. It ends
// others, such as a proxy in front of the socket.
var writesStacks = map[string]bool{"containerd": true, "crio": true, "dockerd": true}

// stacksPID returns the first process on a call's way that writes its goroutine stacks on
// SIGUSR1, 0 for none.
func (f *Facts) stacksPID() int {
	for _, h := range append([]Hop{f.Evidence.Hop}, f.Evidence.Hops...) {
		if h.Process.pid() != 0 && writesStacks[h.Process.Comm] {
			return h.Process.PID
		}
	}
	return 0
}

// blockedThread is the thread in D that RuntimeStorageStall is about, as a path below
// /proc, "" where it is not known.
func (f *Facts) blockedThread() string {
	p := f.Evidence.Process
	if p == nil || len(p.Blocked) == 0 {
		return ""
	}
	longest := slices.MinFunc(p.Blocked, func(a, b BlockedThread) int { return a.Since.Compare(b.Since) })
	return fmt.Sprintf("%d/task/%d", p.PID, longest.TID)
}

// usualUnits are the units of runtimes by the names that they report, for a runtime whose
// cgroup names none.
var usualUnits = map[string]string{"containerd": "containerd", "cri-o": "crio", "docker": "docker"}

// unit is the runtime's systemd unit, "" while that is not known.
func (f *Facts) unit() string {
	if c := f.Evidence.Cgroup; c != nil {
		for part := range strings.SplitSeq(c.Path, "/") {
			if name, ok := strings.CutSuffix(part, ".service"); ok {
				return name
			}
		}
	}
	return usualUnits[f.Runtime.Name]
}

// steps are the steps of the verdict's primary reason with the node's own values;
// nil where there is none.
func (v *Verdict) steps(f *Facts) []string {
	if v.Reason == "" {
		return nil
	}
	f = f.At(v.Hop)
	node, out := f.nodeSteps(v.Chain), []string{}
	for _, s := range reasonOf(v.Reason).Steps {
		if !strings.Contains(s, wordStacks) || f.Evidence.Process.pid() == 0 || f.stacksPID() != 0 {
			out = append(out, node.Replace(s))
		}
	}
	if h := &f.Evidence.Hop; h.Caution != "" {
		out = append(out, h.Caution)
	}
	return out
}
