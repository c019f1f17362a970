package health

import (
	"maps"
	"slices"
	"strings"
)

// redacted stands where a text named a pod.
const redacted = "(a pod)"

// Names are the names of pods and sandboxes that snapshots hold.
type Names struct{ all []string }

// NamesIn collects the names of the pods, and the ids of the sandboxes, that the
// facts name as such.
func NamesIn(snapshots ...*Snapshot) *Names {
	n := &Names{}
	for _, s := range snapshots {
		r := &s.Facts.Relist
		n.addPods(r.Inspecting, r.Failing, r.Slowest)
		if r.Last != nil {
			n.addPods(r.Last.Slowest)
		}
		if c := s.Facts.Evidence.Chain; c != nil {
			n.addLinks(c.Links)
		}
		n.addLinks(s.Chain)
		if c := s.Facts.Evidence.Children; c != nil {
			for _, child := range slices.Concat(c.Stuck, c.Old) {
				n.addID(child.Sandbox)
			}
		}
	}
	return n
}

// AddRelist adds the names in a relist that ended.
func (n *Names) AddRelist(r *RelistResult) { n.addPods(r.Slowest) }

// addPods adds names as texts hold them, the longest form first, or its parts
// would remain.
func (n *Names) addPods(lists ...[]PodInspection) {
	for _, p := range slices.Concat(lists...) {
		n.add(p.Namespace+"/"+p.Name, p.UID, p.Name)
	}
}

// addLinks adds the names of containers and pods in a chain of waiting, and the paths
// that hold their ids.
func (n *Names) addLinks(links []Link) {
	for _, l := range links {
		switch l.Kind {
		case KindContainer, KindPod:
			n.add(l.Name)
			n.add(strings.Split(l.Name, "/")[1:]...)
		case KindMount, KindCgroup: // their paths hold the ids of pods and containers
			n.add(l.Name)
		}
	}
}

// addID adds an id and its beginning: crictl shows 13 characters of it, others 12.
func (n *Names) addID(id string) { n.add(id, id[:min(13, len(id))], id[:min(12, len(id))]) }

func (n *Names) add(names ...string) {
	for _, name := range names {
		if name != "" && name != "/" && !slices.Contains(n.all, name) {
			n.all = append(n.all, name)
		}
	}
}

// Redact returns a copy of s that names no pod, container or sandbox. The entries
// of pods stay, so that they can be counted. The messages of errors of calls about
// one pod are left out: runtimes put names and ids into them.
func (n *Names) Redact(s *Snapshot) *Snapshot {
	out := *s
	n.verdict(&out.Verdict)
	if out.Previous != nil {
		previous := *out.Previous
		n.verdict(&previous)
		out.Previous = &previous
	}
	f := &out.Facts
	f.Endpoint.Searched = n.texts(f.Endpoint.Searched)
	n.relist(&f.Relist)
	f.Status.LastErr = n.callError(f.Status.LastErr)
	f.Status.RuntimeReady, f.Status.NetworkReady = n.condition(f.Status.RuntimeReady), n.condition(f.Status.NetworkReady)
	if f.NodeStatus != nil {
		ns := *f.NodeStatus
		ns.Message = n.Text(ns.Message)
		f.NodeStatus = &ns
	}
	f.Calls = maps.Clone(f.Calls)
	for op, c := range f.Calls {
		c.LastErr = n.callError(c.LastErr)
		f.Calls[op] = c
	}
	f.Dial.Detail = n.Text(f.Dial.Detail)
	f.Probe.Detail = n.Text(f.Probe.Detail)
	if f.Events != nil {
		e := *f.Events
		e.Detail, e.LastErr = n.Text(e.Detail), n.callError(e.LastErr)
		f.Events = &e
	}
	n.evidence(&f.Evidence)
	return &out
}

// Text returns text without the names.
func (n *Names) Text(text string) string {
	for _, name := range n.all {
		text = replaceWord(text, name, redacted)
	}
	return text
}

func (n *Names) texts(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = n.Text(list[i])
	}
	return list
}

func (n *Names) verdict(v *Verdict) {
	v.Active = slices.Clone(v.Active)
	for i := range v.Active {
		v.Active[i].Evidence = n.texts(v.Active[i].Evidence)
	}
	v.Chain, v.ChainEnd = n.links(v.Chain), redactedEnd(v.ChainEnd)
	if v.Culprit != nil {
		v.Culprit = &n.links([]Link{*v.Culprit})[0]
	}
	v.KubeletMessage, v.Next, v.Steps = n.Text(v.KubeletMessage), n.Text(v.Next), n.texts(v.Steps)
}

// redactedEnd keeps that a chain ends before the culprit: without it its last link would
// pass for one.
func redactedEnd(why string) string {
	if why == "" {
		return ""
	}
	return "why is not shown without authentication"
}

func (n *Names) links(list []Link) []Link {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].WithoutNames()
		list[i].Evidence = n.Text(list[i].Evidence)
	}
	return list
}

func (n *Names) relist(r *Relist) {
	r.Inspecting, r.Failing, r.Slowest = n.pods(r.Inspecting), n.pods(r.Failing), n.pods(r.Slowest)
	if r.InFlight != nil {
		in := *r.InFlight
		in.Refused = n.callError(in.Refused)
		r.InFlight = &in
	}
	if r.Last != nil {
		r.Last = n.RedactRelist(r.Last)
	}
}

// RedactRelist returns a copy of a relist that names no pod.
func (n *Names) RedactRelist(r *RelistResult) *RelistResult {
	out := *r
	out.Err, out.Refused, out.Slowest = n.callError(r.Err), n.callError(r.Refused), n.pods(r.Slowest)
	return &out
}

func (n *Names) pods(list []PodInspection) []PodInspection {
	list = slices.Clone(list)
	for i := range list {
		p := &list[i]
		p.UID, p.Namespace, p.Name, p.Err = "", "", "", n.callError(p.Err)
	}
	return list
}

// listOperations are those whose errors are about no pod in particular.
var listOperations = []string{opVersion, opStatus, string(PhaseListPodSandbox), string(PhaseListContainers), "container_events"}

func (n *Names) callError(e *CallError) *CallError {
	if e == nil {
		return nil
	}
	out := *e
	out.Message = n.Text(e.Message)
	if !slices.Contains(listOperations, e.Operation) {
		out.Message = ""
	}
	return &out
}

func (n *Names) condition(c *Condition) *Condition {
	if c == nil {
		return nil
	}
	return &Condition{Status: c.Status, Reason: n.Text(c.Reason), Message: n.Text(c.Message)}
}

func (n *Names) evidence(e *Evidence) {
	e.Sources = maps.Clone(e.Sources)
	for name, s := range e.Sources {
		s.Err = n.Text(s.Err)
		e.Sources[name] = s
	}
	if e.Listener != nil {
		l := *e.Listener
		l.Command, l.Unit = n.Text(l.Command), n.Text(l.Unit)
		e.Listener = &l
	}
	e.Process = n.process(e.Process)
	if e.Chain != nil {
		c := *e.Chain
		c.Links, c.Unknown = n.links(c.Links), redactedEnd(c.Unknown)
		e.Chain = &c
	}
	if e.Children != nil {
		c := *e.Children
		c.Stuck, c.Old = n.children(c.Stuck), n.children(c.Old)
		e.Children = &c
	}
	if e.Cgroup != nil {
		c := *e.Cgroup
		c.Path = n.Text(c.Path)
		c.MemoryLimits, c.CPUWeights = slices.Clone(c.MemoryLimits), slices.Clone(c.CPUWeights)
		for i := range c.MemoryLimits {
			c.MemoryLimits[i].Path = n.Text(c.MemoryLimits[i].Path)
		}
		for i := range c.CPUWeights {
			c.CPUWeights[i].Path = n.Text(c.CPUWeights[i].Path)
		}
		e.Cgroup = &c
	}
	if e.Storage != nil {
		st := *e.Storage
		st.FileSystems = slices.Clone(st.FileSystems)
		for i := range st.FileSystems {
			f := &st.FileSystems[i]
			f.Directory, f.Device = n.Text(f.Directory), n.Text(f.Device)
		}
		e.Storage = &st
	}
	if e.Kubelet != nil {
		k := *e.Kubelet
		k.Detail = n.Text(k.Detail)
		e.Kubelet = &k
	}
	if e.KubeletProcess != nil {
		k := *e.KubeletProcess
		k.Problem = n.Text(k.Problem)
		e.KubeletProcess = &k
	}
	if e.Docker != nil {
		d := *e.Docker
		d.Detail = n.Text(d.Detail)
		for _, p := range []**DockerProcess{&d.Daemon, &d.Containerd} {
			if *p != nil {
				one := **p
				one.Process = n.process(one.Process)
				*p = &one
			}
		}
		e.Docker = &d
	}
}

func (n *Names) process(p *Process) *Process {
	if p == nil {
		return nil
	}
	out := *p
	out.Command, out.Unit = n.Text(p.Command), n.Text(p.Unit)
	if p.Lock != nil {
		lock := *p.Lock
		lock.File = n.Text(lock.File)
		out.Lock = &lock
	}
	return &out
}

func (n *Names) children(list []Child) []Child {
	list = slices.Clone(list)
	for i := range list {
		list[i].Sandbox = ""
	}
	return list
}

// replaceWord replaces name where it stands alone: a pod called "list" must not
// tear ListContainers apart.
func replaceWord(s, name, with string) string {
	if name == "" || name == "/" {
		return s
	}
	var b strings.Builder
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 {
			b.WriteString(s[from:])
			return b.String()
		}
		i += from
		end := i + len(name)
		b.WriteString(s[from:i])
		if isNameByte(s, i-1) || nameContinues(s[end:]) {
			b.WriteString(name)
		} else {
			b.WriteString(with)
		}
		from = end
	}
}

// nameBytes are those of Kubernetes names. An underscore is none of them:
// runtimes join names by it.
const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."

// isNameByte reports whether s has a byte of a name at i.
func isNameByte(s string, i int) bool {
	return i >= 0 && i < len(s) && strings.IndexByte(nameBytes, s[i]) >= 0
}

// nameContinues reports whether s, which follows a name, makes a longer name of
// it. A full stop that ends a sentence does not.
func nameContinues(s string) bool {
	if strings.HasPrefix(s, ".") {
		return isNameByte(s, 1)
	}
	return isNameByte(s, 0)
}
