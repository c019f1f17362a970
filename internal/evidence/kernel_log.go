package evidence

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kernellog"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// maxRecords bounds the records that one sample reads. A log that grows faster is overwritten, and the source
	// reports that.
	maxRecords = 1000
	// keptMessages and messageAge bound the messages that are kept, keptSubjects the processes that are remembered.
	keptMessages = 32
	messageAge   = 30 * time.Minute
	keptSubjects = 64
	// limitToKill is the longest time between the line that has the memory limit and that of the kill.
	limitToKill = time.Second
)

// initialPIDs is the node's own pid namespace (PROC_PID_INIT_INO): the kernel logs the pids of that one.
const initialPIDs = "pid:[4026531836]"

// subject is a process whose end by the kernel is evidence.
type subject struct {
	pid     int
	started time.Time
	comm    string // "" for any
	kind    facts.LogKind
	socket  string
}

// kernelLog is the source of the kernel's messages. It reads each record once, so a sample in the steady state is one
// read that returns nothing.
type kernelLog struct {
	path, procfs string
	hasNodePIDs  bool             // the pids of /proc are those that the kernel logs
	present      func() []subject // that run, or have ended last
	up           func() time.Duration
	unread       proc.Unread // by this sample

	log      *kernellog.Log
	drained  time.Time // when the log last had no further record
	limit    kernellog.Message
	subjects []subject           // the last that were seen
	unproven []kernellog.Message // kills of processes that are not known yet
	messages []facts.KernelMessage
}

// newKernelLog returns the source. Where the log cannot be read for lack of a right, it reports only that; a container
// without the device has no kernel log.
func (r *Registry) newKernelLog(procfs string) *Watch[facts.KernelLog] {
	namespace, _ := proc.Link(filepath.Join(procfs, "self/ns/pid")) // without it no pid is believed
	k := &kernelLog{
		path:        kernellog.Path,
		procfs:      procfs,
		hasNodePIDs: namespace == initialPIDs,
		present:     r.subjects,
		up:          awake,
		unread:      proc.Unread{},
	}
	return NewWatch(Spec[facts.KernelLog]{
		Name:     "kernel_log",
		Every:    2,
		Calm:     8,
		Timeout:  2 * time.Second,
		Gather:   k.gather,
		Unread:   k.unread.Drain,
		Resample: func(v *facts.KernelLog) bool { return v.HasMore },
		Store:    func(e *facts.Evidence, v *facts.KernelLog) { e.KernelLog = v },
	})
}

// awake is the time since boot without suspended time, as the kernel logs it.
func awake() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails on no kernel that Go runs on
	return time.Duration(t.Nano())
}

// subjects returns the hops and the kubelet.
func (r *Registry) subjects() (out []subject) {
	for i, h := range r.hops {
		p := h.process.Value()
		if p == nil || p.PID == 0 {
			continue
		}
		s := subject{pid: p.PID, started: p.Start, comm: p.Comm, kind: facts.LogKill}
		if i > 0 {
			s.socket = h.path()
		}
		out = append(out, s)
	}
	if k := r.kubelet.Value(); k != nil {
		out = append(out, subject{pid: k.PID, started: k.Started, kind: facts.LogKubeletKill})
	}
	return out
}

func (k *kernelLog) gather(context.Context) (*facts.KernelLog, error) {
	k.remember()
	if k.log == nil {
		log, err := kernellog.Open(k.path)
		k.unread.Add("messages", err)
		if err != nil {
			return nil, ErrNoData
		}
		k.log = log
	}
	out := &facts.KernelLog{At: time.Now()}
	err := k.read(out.At)
	out.HasMore = err == nil
	if errors.Is(err, io.EOF) {
		k.drained = out.At
	} else if err != nil {
		k.log.Close()
		k.log = nil
		return nil, err
	}
	k.prove()
	old := func(m facts.KernelMessage) bool { return out.At.Sub(m.At) > messageAge }
	k.messages = slices.DeleteFunc(k.messages, old)
	out.Messages = slices.Clone(k.messages)
	return out, nil
}

// read reads records until there is none, with io.EOF, or until there are too many.
func (k *kernelLog) read(moment time.Time) error {
	up := k.up()
	for range maxRecords {
		record, err := k.log.Next()
		if errors.Is(err, kernellog.ErrOverrun) {
			k.unread.Add("records", err)
			continue
		}
		if err != nil {
			return err
		}
		m, ok := kernellog.Parse(record)
		if ok {
			m.At = moment.Add(min(0, m.Up-up))
			// The kernel's clock drifts over months.
			if m.At.Before(k.drained) {
				m.At = k.drained
			}
			k.keep(m)
		}
	}
	return nil
}

// keep keeps a message.
func (k *kernelLog) keep(m kernellog.Message) {
	switch m.Kind {
	case facts.LogLimit:
		k.limit = m
	case facts.LogKill:
		if m.Up-k.limit.Up <= limitToKill {
			m.Cgroup = k.limit.Cgroup
		}
		k.unproven = keepLast(append(k.unproven, m), keptMessages)
	case facts.LogHung:
		m.TID = m.PID
		m.PID = proc.ThreadGroup(k.procfs, m.TID)
		if k.hasNodePIDs && m.PID != 0 {
			k.add(m.KernelMessage)
		}
	default:
		k.add(m.KernelMessage)
	}
}

// add adds a message, in place of an earlier one of the same thing.
func (k *kernelLog) add(m facts.KernelMessage) {
	m.Count = 1
	i := slices.IndexFunc(k.messages, func(earlier facts.KernelMessage) bool {
		sameText := earlier.Text == m.Text || m.Kind == facts.LogHung
		return earlier.Kind == m.Kind && earlier.PID == m.PID && earlier.TID == m.TID && sameText
	})
	if i >= 0 {
		m.Count += k.messages[i].Count
		k.messages = slices.Delete(k.messages, i, i+1)
	}
	k.messages = keepLast(append(k.messages, m), keptMessages)
}

// remember adds the present subjects to those that were seen.
func (k *kernelLog) remember() {
	for _, s := range k.present() {
		isSame := func(seen subject) bool {
			drift := seen.started.Sub(s.started)
			return seen.pid == s.pid && drift.Abs() < time.Second
		}
		if !slices.ContainsFunc(k.subjects, isSame) {
			k.subjects = keepLast(append(k.subjects, s), keptSubjects)
		}
	}
}

// prove adds the kills of the subjects. The kill of any other process stays unproven: that process may become known
// later.
func (k *kernelLog) prove() {
	if !k.hasNodePIDs {
		k.unproven = nil
		return
	}
	k.unproven = slices.DeleteFunc(k.unproven, func(m kernellog.Message) bool {
		i := slices.IndexFunc(k.subjects, func(s subject) bool {
			lived := !m.At.Before(s.started.Add(-time.Second))
			return s.pid == m.PID && lived && (s.comm == "" || s.comm == m.Comm)
		})
		if i < 0 {
			return false
		}
		m.Kind = k.subjects[i].kind
		m.Socket = k.subjects[i].socket
		k.add(m.KernelMessage)
		return true
	})
}

// keepLast returns the last n of a list.
func keepLast[T any](list []T, n int) []T { return slices.Delete(list, 0, max(0, len(list)-n)) }
