package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// pingFailedFor is how long /_ping must fail where nothing else speaks
	// against dockerd.
	pingFailedFor = 3 * time.Second
	// containerdStoppedFor is how long dockerd's containerd must be stopped or
	// frozen, containerdGoneFor how long it must be gone or accept nobody: dockerd
	// starts its own one again within that time.
	containerdStoppedFor = time.Second
	containerdGoneFor    = 3 * time.Second
)

// dockerReasons speak of what is behind cri-dockerd.
var dockerReasons = []Reason{
	{
		ID: DockerDaemonUnreachable, Layer: LayerProcess, Severity: SeverityCritical,

		match: (*view).dockerUnreachable,
	},
	{
		ID: DockerContainerdUnreachable, Layer: LayerProcess, Severity: SeverityCritical,

		match: (*view).dockerContainerdUnreachable,
	},
}

// dockerUnreachable is the evidence that dockerd cannot be reached, nil for none.
func (w *view) dockerUnreachable() []string {
	d := w.f.Evidence.Docker
	if d == nil {
		return nil
	}
	_, _, hanging := w.hang()
	suffer := w.f.Relist.Failures > 0 || hanging
	certain := w.age(d.FailedSince) >= pingFailedFor || suffer || d.Daemon.broken()
	pinged := w.pingFails(d) && certain
	if !pinged && w.criDockerdSays() == "" {
		return nil
	}
	var out []string
	if !d.OK {
		out = append(out, fmt.Sprintf("%s: %s, for %s", d.Socket, ProbeText(&d.Probe), short(w.age(d.FailedSince))))
	}
	out = append(out, w.dockerProcessEvidence("dockerd", d.Daemon)...)
	if d.Daemon.exhausted() {
		out = append(out, `look in dockerd's log for "accept4: too many open files; retrying in 1s"`)
	}
	switch said := w.criDockerdSays(); {
	case said != "":
		out = append(out, said)
	case suffer:
		out = append(out, w.callEvidence()...)
	default:
		out = append(out, "lists are answered, on connections that cri-dockerd opened before")
	}
	return append(out, w.containerdEvidence(d)...)
}

// pingFails reports whether /_ping fails in a way that speaks of dockerd. That
// nobody listens on the path does so only where it is dockerd's.
func (w *view) pingFails(d *Docker) bool {
	if d.OK || d.FailedSince.IsZero() {
		return false
	}
	switch d.Cause {
	case CausePermissionDenied: // that is plegd's alone
		return false
	case CauseMissing, CauseNotSocket, CauseRefused:
		return !d.AnsweredAt.IsZero()
	}
	return true
}

// criDockerdSays is what cri-dockerd last said of a dockerd that it cannot reach,
// by an error of a list or of Status or by a condition; "" where it says nothing
// of that kind.
func (w *view) criDockerdSays() string {
	if e := w.failed(); namesDocker(e) {
		return fmt.Sprintf("%s failed: %s", e.Operation, e.Message)
	}
	s := &w.f.Status
	if namesDocker(s.LastErr) {
		return fmt.Sprintf("%s failed: %s", s.LastErr.Operation, s.LastErr.Message)
	}
	if c := s.RuntimeReady; s.Answered && !s.Restored && !c.Good() && c != nil && c.Reason == "DockerDaemonNotReady" {
		return "Status says " + c.print("RuntimeReady")
	}
	return ""
}

// namesDocker reports whether an error is about the connection to the Docker
// daemon, in the words of Docker's client.
func namesDocker(e *CallError) bool {
	if e == nil {
		return false
	}
	text := strings.ToLower(e.Message)
	return strings.Contains(text, "connect to the docker daemon") || strings.Contains(text, "connect to the docker api")
}

// dockerJustBack reports whether /_ping is answered again since a moment ago:
// calls that hung meanwhile have yet to be answered.
func (w *view) dockerJustBack(d *Docker) bool { return d.OK && w.age(d.OKSince) < HangAfter }

// besideDocker are the reasons that a dockerd that does not answer looks like.
var besideDocker = []string{RuntimeUnresponsive, RuntimeListStall, RuntimeNotReady, PodInspectionStall}

// waitsForDocker reports whether a reason is not to be named before dockerd has
// answered: behind cri-dockerd a call that hangs or fails says nothing while
// /_ping fails, and until one that was sent meanwhile is answered.
func (w *view) waitsForDocker(id string) bool {
	d := w.f.Evidence.Docker
	if d == nil || !slices.Contains(besideDocker, id) {
		return false
	}
	if s := &w.f.Status; id == RuntimeNotReady && s.Answered && !s.RuntimeReady.Good() {
		return false // the runtime says so itself
	}
	if id == PodInspectionStall && w.containerdEvidence(d) != nil {
		return true // it waits for that, and not for a shim
	}
	if d.OK {
		return w.age(d.At) > HangAfter || w.dockerJustBack(d)
	}
	return w.pingFails(d)
}

// dockerContainerdUnreachable is the evidence that dockerd's containerd cannot be
// reached, nil for none.
func (w *view) dockerContainerdUnreachable() []string {
	d := w.f.Evidence.Docker
	if d == nil || d.Daemon == nil || d.Daemon.gone() {
		return nil
	}
	return w.containerdEvidence(d)
}

// containerdEvidence says what is wrong with dockerd's containerd; nil where
// nothing is.
func (w *view) containerdEvidence(d *Docker) []string {
	c := d.Containerd
	if c == nil {
		return nil
	}
	downFor := containerdStoppedFor
	if c.gone() {
		downFor = containerdGoneFor
	}
	down := w.lasts(c.DownSince, downFor)
	queued := c.Queue != nil && !c.Queue.WaitingSince.IsZero() && w.age(c.Queue.WaitingSince) >= containerdGoneFor
	if !down && !queued {
		return nil
	}
	out := w.dockerProcessEvidence("dockerd's containerd", c)
	if down {
		out = append(out, "for "+short(w.age(c.DownSince)))
	}
	return append(out, "its socket is "+c.Socket)
}

// dockerProcessEvidence says what the node shows of a process behind cri-dockerd.
func (w *view) dockerProcessEvidence(name string, h *DockerProcess) []string {
	if h == nil {
		return nil
	}
	var out []string
	if p := h.Process; p != nil {
		who := fmt.Sprintf("%s (pid %d)", name, p.PID)
		switch {
		case !p.Alive:
			out = append(out, who+" is gone")
		case h.Frozen:
			out = append(out, who+": its cgroup is frozen")
		default:
			out = append(out, fmt.Sprintf("%s: %s", who, ProcessText(p)))
		}
	}
	if q := h.Queue; q != nil {
		switch {
		case !q.Listening:
			out = append(out, "nobody listens on "+h.Socket)
		case q.Length > 0:
			out = append(out, fmt.Sprintf("accept queue %d of %d", q.Length, q.Limit))
		}
	}
	return out
}

// broken reports whether what the node shows of the process explains alone that
// it answers nobody.
func (h *DockerProcess) broken() bool {
	if h == nil {
		return false
	}
	queued := h.Queue != nil && h.Queue.Length > 0
	return !h.DownSince.IsZero() || h.exhausted() && queued
}

// pidText is the process's number, "" where none is known to run.
func (h *DockerProcess) pidText() string {
	if h == nil || h.Process == nil || !h.Process.Alive {
		return ""
	}
	return pidText(h.Process.PID)
}

func (h *DockerProcess) gone() bool { return h.Process != nil && !h.Process.Alive }

func (h *DockerProcess) exhausted() bool {
	return h != nil && h.Process != nil && h.Process.FDsExhausted()
}
