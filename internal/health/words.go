package health

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// words are the values of the words in braces of a page, by word. A word that the node shows no
// value for is "".
type words map[string]string

// wordPattern matches a word of a page. Braces of the shell and of awk have other characters in them.
var wordPattern = regexp.MustCompile(`\{[a-z]+\}`)

// genericWords are what a page shows, which is about no node in particular.
var genericWords = words{
	"{pid}":         "PID",
	"{unit}":        "UNIT",
	"{socket}":      "SOCKET",
	"{crictl}":      "crictl -r unix://SOCKET",
	"{cgroup}":      "/CGROUP",
	"{level}":       "/CGROUP",
	"{levelunit}":   "UNIT",
	"{fds}":         "NUMBER",
	"{stacks}":      "PID",
	"{other}":       "PID",
	"{holder}":      "PID",
	"{blocked}":     "PID/task/TID",
	"{storage}":     "DIRECTORY",
	"{root}":        "DIRECTORY",
	"{state}":       "DIRECTORY",
	"{shim}":        "PID",
	"{helper}":      "PID",
	"{peer}":        "PID",
	"{kubelet}":     "UNIT",
	"{abortable}":   "UNIT",
	"{certificate}": "FILE",
}

// fill replaces the words of a text. It reports false if one of them has no value.
func (v words) fill(text string) (filled string, known bool) {
	known = true
	filled = wordPattern.ReplaceAllStringFunc(text, func(word string) string {
		known = known && v[word] != ""
		return v[word]
	})
	return filled, known
}

// generic returns a text with generic values, as a page has it: PID, UNIT, SOCKET.
func generic(text string) string {
	filled, _ := genericWords.fill(text)
	return filled
}

// nodeWords returns the node's values for the steps of a reason. The facts are those of the
// reason's hop; chain is the verdict's.
func nodeWords(f *facts.Facts, reason string, chain []facts.Link) words {
	e := &f.Evidence
	process := cmp.Or(e.Process, &facts.Process{})
	level := limitingLevel(f, reason)
	v := words{
		"{pid}":         pidText(process.LivePID()),
		"{unit}":        runtimeUnit(f),
		"{socket}":      f.Endpoint.Path,
		"{cgroup}":      cgroupPath(e.Cgroup),
		"{level}":       level,
		"{levelunit}":   unitOfLevel(level),
		"{fds}":         descriptorLimit(process),
		"{stacks}":      pidText(stacksPID(f)),
		"{other}":       pidText(subjectPID(f, chain, RuntimeSocketTakenOver, "")),
		"{holder}":      pidText(process.Lock.Holder()),
		"{blocked}":     blockedTask(process),
		"{storage}":     storageDirectory(e.Storage),
		"{root}":        directoryFor(e.Storage, "root"),
		"{state}":       directoryFor(e.Storage, "state"),
		"{shim}":        pidText(subjectPID(f, chain, ShimStuck, facts.KindShim)),
		"{helper}":      pidText(subjectPID(f, chain, RuntimeHelperStuck, facts.KindHelper)),
		"{peer}":        pidText(lastPID(chain)),
		"{kubelet}":     e.KubeletUnit,
		"{certificate}": certificateFile(e.KubeletAPI),
		"{abortable}":   abortableKubelet(e.KubeletUnit, chain),
	}
	if f.Endpoint.Path != "" {
		v["{crictl}"] = "crictl -r unix://" + f.Endpoint.Path // crictl's default may be another runtime
	}
	return v
}

// pidText returns a pid as a step has it, "" for none.
func pidText(pid int) string {
	if pid <= 0 {
		return ""
	}
	return strconv.Itoa(pid)
}

// lastPID returns the process at the end of the chain, 0 for none.
func lastPID(chain []facts.Link) int {
	if len(chain) == 0 {
		return 0
	}
	return chain[len(chain)-1].PID
}

// subjectPID returns the process of a kind in the chain, else the subject of the reason.
func subjectPID(f *facts.Facts, chain []facts.Link, reason string, kind facts.LinkKind) int {
	for _, l := range chain {
		if l.Kind == kind && l.PID > 0 {
			return l.PID
		}
	}
	return Subject(f, reason)
}

// cgroupPath returns the path of the runtime's cgroup, or of the frozen one above it. The root has none.
func cgroupPath(c *facts.Cgroup) string {
	if c == nil || c.Path == "/" {
		return ""
	}
	return c.Path
}

// limitingLevel returns the cgroup whose limit the evidence of a reason names, "" for none.
func limitingLevel(f *facts.Facts, reason string) string {
	c := f.Evidence.Cgroup
	if c == nil {
		return ""
	}
	if reason == RuntimeThrottled {
		return c.ThrottledPath
	}
	for i := range c.MemoryLimits {
		l := &c.MemoryLimits[i]
		if name, _ := limitMet(l); name != "" || l.OOMKills > 0 {
			return l.Path
		}
	}
	return ""
}

// unitOfLevel returns the systemd unit or slice whose cgroup a level is, "" where it is none.
func unitOfLevel(level string) string {
	name := path.Base(level)
	if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".scope") {
		return name
	}
	return ""
}

// descriptorLimit returns a limit of open files that is above the one that a process has used up:
// its hard limit, or twice that where the soft limit is the hard one. "" where that is not known.
func descriptorLimit(p *facts.Process) string {
	switch {
	case p.HardFDs <= 0:
		return ""
	case p.HardFDs > p.MaxFDs:
		return fmt.Sprintf("%[1]d:%[1]d", p.HardFDs)
	}
	return fmt.Sprintf("%[1]d:%[1]d", 2*p.HardFDs)
}

// blockedTask returns the thread that has been blocked for longest, as a path below /proc.
func blockedTask(p *facts.Process) string {
	if len(p.Blocked) == 0 {
		return ""
	}
	longest := slices.MinFunc(p.Blocked, func(a, b facts.BlockedThread) int { return a.Since.Compare(b.Since) })
	return fmt.Sprintf("%d/task/%d", p.PID, longest.TID)
}

// storageDirectory returns the directory whose file system lacks something, else the first one.
func storageDirectory(s *facts.Storage) string {
	if s == nil || len(s.FileSystems) == 0 {
		return ""
	}
	return cmp.Or(s.Lacking(facts.StorageStill), &s.FileSystems[0]).Directory
}

// directoryFor returns the first directory of a use, "" where none is known.
func directoryFor(s *facts.Storage, use string) string {
	for _, f := range cmp.Or(s, &facts.Storage{}).FileSystems {
		if f.Use == use {
			return f.Directory
		}
	}
	return ""
}

// stacksPID returns the first process in the CRI call path that has proved to write its goroutine stacks on
// SIGUSR1, 0 for none. The signal ends other programs, cri-dockerd among them.
func stacksPID(f *facts.Facts) int {
	for _, h := range append([]facts.Hop{f.Evidence.Hop}, f.Evidence.Hops...) {
		if h.Process.LivePID() != 0 && h.Process.Program != "" {
			return h.Process.PID
		}
	}
	return 0
}

// packagedUnits are the units of the packages whose runtime listens at a path. They count only
// until a process has been seen there: k3s and RKE2 share a path, and dockerd has a containerd of its own.
var packagedUnits = map[string]string{
	"/run/containerd/containerd.sock":           "containerd",
	"/run/crio/crio.sock":                       "crio",
	"/run/cri-dockerd.sock":                     "cri-docker",
	"/run/docker.sock":                          "docker",
	"/run/docker/containerd/containerd.sock":    "docker",
	"/snap/microk8s/common/run/containerd.sock": "snap.microk8s.daemon-containerd",
}

// runtimeUnit returns the systemd service that runs the runtime, or last ran it; "" where no service does or it is not known.
func runtimeUnit(f *facts.Facts) string {
	p := f.Evidence.Process
	if p != nil && p.Unit != "" {
		return strings.TrimSuffix(p.Unit, ".service")
	}
	if c := f.Evidence.Cgroup; c != nil {
		for part := range strings.SplitSeq(c.Path, "/") {
			if name, ok := strings.CutSuffix(part, ".service"); ok {
				return name
			}
		}
	}
	if p != nil {
		return ""
	}
	return packagedUnits[strings.TrimPrefix(f.Endpoint.Path, "/var")]
}

// abortableKubelet returns the kubelet's unit where it may be ended for its stacks: the unit runs
// nothing else, and the kubelet does not wait for a mount, for which it would wait again.
func abortableKubelet(unit string, chain []facts.Link) string {
	onMount := slices.ContainsFunc(chain, func(l facts.Link) bool { return l.Kind == facts.KindMount })
	if onMount || unit != "kubelet" {
		return ""
	}
	return unit
}

// certificateFile returns the file of the kubelet's client certificate, "" where it is not known
// or not fit for a command.
func certificateFile(api *facts.KubeletAPI) string {
	if api == nil || !plainPath.MatchString(api.Certificate) {
		return ""
	}
	return api.Certificate
}

// plainPath matches a path without any character that a shell takes for something else.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._-]+$`)
