//go:build e2e

package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

// endings are faults of the table, and what their incidents must say of their end. It is asked
// before the fault is made.
var endings = []struct {
	fault string
	want  func(*bench) string
}{
	{fault: "SIGSTOP", want: func(b *bench) string {
		return fmt.Sprintf("containerd, pid %d, was stopped and was continued. It was not restarted.", b.Pid())
	}},
	{fault: "cgroup frozen", want: thawed},
	{fault: "parent cgroup frozen", want: thawed},
	{fault: "prlimit to 8 fds", want: func(b *bench) string {
		return fmt.Sprintf("The limit of open files of containerd, pid %d, was raised from 8 to ", b.Pid())
	}},
	{fault: "descriptors nearly used up", want: func(b *bench) string { return fmt.Sprintf("containerd, pid %d, had ", b.Pid()) }},
	{fault: "root full, tmpfs", want: freed},
	{fault: "root full, ext4", want: freed},
	{fault: "a program that runc waits for hangs", want: constant("has ended.")},
	{fault: "the reader of the runtime's log is stopped", want: func(b *bench) string {
		return fmt.Sprintf("pid %d, was stopped and was continued.", b.LogReader())
	}},
	{fault: "kill -9", want: func(b *bench) string {
		return fmt.Sprintf("containerd was restarted: pid %d before, pid ", b.Pid())
	}},
}

func thawed(b *bench) string { return "The cgroup " + b.group.Path() + " was frozen and was thawed." }
func freed(b *bench) string  { return "The file system of " + b.disk.Path() + " had " }

// TestEndings makes faults that end in different ways, and compares what their incidents say ended them.
func TestEndings(t *testing.T) {
	needContainerd(t)
	for _, e := range endings {
		f := faultNamed(t, e.fault)
		if f.leftOut(t) != "" {
			continue
		}
		t.Run(f.test(), func(t *testing.T) {
			b := newBench(t, f)
			b.watch(f)
			b.plegd.AwaitRelists(time.Minute, 3)
			want := e.want(b)
			b.injected = time.Now()
			undo := f.make(b)
			b.await(f)
			b.awaitCause(f)
			undo()
			b.awaitEnding(f, want)
		})
	}
}

// awaitCause waits until the fault's cause is known.
func (b *bench) awaitCause(f *fault) {
	b.t.Helper()
	lab.Eventually(b.t, f.limit+10*time.Second, "plegd explains "+f.want, func() error {
		s, err := b.verdict()
		if err != nil {
			return err
		}
		if wrong := f.explained(b, &s); wrong != "" {
			return errors.New(wrong)
		}
		return nil
	})
}

// awaitEnding waits until the incident of a fault is over, and looks for a text in each sentence about its end.
func (b *bench) awaitEnding(f *fault, want string) {
	b.t.Helper()
	var one *incident.Incident
	lab.Eventually(b.t, f.back+2*time.Minute, "the incident of "+f.want+" is over", func() (err error) {
		one, err = b.incidentOf(f, b.injected)
		return err
	})
	lab.Report(b.t, "%s ended: %s", f.name, strings.Join(one.Ending, " "))
	lacks := func(sentence string) bool { return !strings.Contains(sentence, want) }
	if len(one.Ending) == 0 || slices.ContainsFunc(one.Ending, lacks) {
		b.t.Errorf("the incident says %q, want sentences with %q", one.Ending, want)
	}
}
