package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A step of a reason may hold these words, which stand for the node's own values:
// a step can then be pasted as it is, also where two runtimes run.
const (
	wordPID    = "{pid}"    // of the process behind the held connection
	wordUnit   = "{unit}"   // its systemd unit
	wordSocket = "{socket}" // the path that plegd watches
	wordCrictl = "{crictl}" // crictl with that socket: its default may be another runtime's
	wordCgroup = "{cgroup}" // the runtime's cgroup, or the one above it that is frozen
	wordStacks = "{stacks}" // the process that writes its goroutine stacks on SIGUSR1: cri-dockerd writes none

	wordOther   = "{other}"   // the process that took the socket over
	wordHolder  = "{holder}"  // the one that holds a file lock
	wordBlocked = "{blocked}" // a thread in D, as a path below /proc

	wordStorage = "{storage}" // the runtime's directory whose file system lacks something

	wordShim   = "{shim}" // the process that the reason is about, of that kind
	wordHelper = "{helper}"
)

// subjectWords are the words that stand for the process that a reason is about: the
// one of that kind in the chain of waiting, else the reason's subject.
var subjectWords = []struct {
	word, reason string
	kind         LinkKind
}{{wordShim, ShimStuck, KindShim}, {wordHelper, RuntimeHelperStuck, KindHelper}, {wordOther, RuntimeSocketTakenOver,
	""}}

// usualUnits are the units of runtimes by the names that they give themselves,
// for a runtime whose cgroup names none.
var usualUnits = map[string]string{runtimeContainerd: "containerd", runtimeCRIO: "crio", "docker": "docker"}

// genericWords are the words, each with what a page can say of it, which is about no
// node in particular.
var genericWords = []string{
	wordPID, "PID", wordUnit, "UNIT", wordSocket, "SOCKET", wordCrictl, crictl("SOCKET"), wordCgroup, "/CGROUP",
	wordStacks, "DAEMON", wordOther, "OTHER", wordHolder, "HOLDER", wordBlocked, "PID/task/TID", wordStorage, "DIRECTORY",
	wordShim, "PID", wordHelper, "PID",
}

var genericSteps = strings.NewReplacer(genericWords...)

// writesStacks are the programs that write their goroutine stacks on SIGUSR1. It ends
// others, such as a proxy in front of the socket.
var writesStacks = map[string]bool{runtimeContainerd: true, "crio": true, "dockerd": true}

// crictl is crictl as it asks the runtime behind a socket.
func crictl(socket string) string { return "crictl -r unix://" + socket }

// Generic returns a step or a Next with the words that stand for this node's
// values replaced by what a page can say of them: PID, UNIT, SOCKET.
func Generic(step string) string { return genericSteps.Replace(step) }

// nodeSteps replaces the generic words by the node's values from the facts and the wait
// chain. A word without a known value stays.
func (f *Facts) nodeSteps(chain []Link) *strings.Replacer {
	var known []string
	is := func(word, value string) {
		if value != "" {
			known = append(known, word, value)
		}
	}
	process := f.Evidence.Process
	if process != nil && process.Alive {
		is(wordPID, pidText(process.PID))
	}
	is(wordStacks, pidText(f.stacksPID()))
	is(wordUnit, f.unit())
	if f.Endpoint.Path != "" {
		is(wordSocket, f.Endpoint.Path)
		is(wordCrictl, crictl(f.Endpoint.Path))
	}
	if c := f.Evidence.Cgroup; c != nil && c.Path != "/" {
		is(wordCgroup, c.Path)
	}
	if s := f.Evidence.Storage; s != nil && len(s.FileSystems) > 0 {
		is(wordStorage, s.FileSystems[max(0, slices.IndexFunc(s.FileSystems,
			func(f FileSystem) bool { return f.lacks(storageStill) != "" }))].Directory)
	}
	if process != nil && process.Lock != nil {
		is(wordHolder, pidText(process.Lock.HolderPID))
	}
	is(wordBlocked, f.blockedThread())
	for _, w := range subjectWords {
		pid, _ := Subject(f, w.reason)
		if i := slices.IndexFunc(chain, func(l Link) bool { return w.kind != "" && l.Kind == w.kind && l.PID > 0 }); i >= 0 {
			pid = chain[i].PID
		}
		is(w.word, pidText(pid))
	}
	return strings.NewReplacer(slices.Concat(known, genericWords)...)
}

// pidText is a pid as a step has it, "" where it is not known.
func pidText(pid int) string {
	if pid <= 0 {
		return ""
	}
	return strconv.Itoa(pid)
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

// Steps are the steps of the verdict's primary reason with the node's own values;
// nil where there is none.
func Steps(f *Facts, v *Verdict) []string {
	if v.Reason == "" {
		return nil
	}
	row := reasonOf(v.Reason)
	f = f.At(v.Hop)
	words := f.nodeSteps(v.Chain)
	out := make([]string, 0, len(row.Steps))
	for _, s := range row.Steps {
		if strings.Contains(s, wordStacks) && f.Evidence.Process.pid() != 0 && f.stacksPID() == 0 {
			continue
		}
		out = append(out, words.Replace(s))
	}
	return f.Evidence.Hop.steps(out)
}
