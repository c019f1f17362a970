//go:build e2e

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Subscriber is a client of a runtime's event stream, as the kubelet is, in a
// process of its own, so that it can be stopped. Its stream has no deadline.
type Subscriber struct {
	t   testing.TB
	cmd *exec.Cmd

	mu     sync.Mutex
	opened bool
	events []RuntimeEvent
	err    string
}

// RuntimeEvent is what a subscriber was told.
type RuntimeEvent struct {
	// ID is the container's or sandbox's, Type CREATED, STARTED, STOPPED or
	// DELETED.
	ID, Type string
	// CreatedAt is the runtime's time of it, At when the subscriber had it.
	CreatedAt, At time.Time
	// Sandbox is true where the event is of a sandbox.
	Sandbox bool
}

// subscriberEnv holds the socket in the environment of a subscriber's process,
// and is unset everywhere else.
const subscriberEnv = "PLEGD_LAB_SUBSCRIBER"

// subscriberLine is one line from it.
type subscriberLine struct {
	Event *RuntimeEvent `json:",omitempty"`
	// Opened is said once, when the runtime has answered the call.
	Opened bool   `json:",omitempty"`
	Error  string `json:",omitempty"`
}

// NewSubscriber subscribes to a runtime's events until the test ends.
func NewSubscriber(t testing.TB, socket string) *Subscriber {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("lab: TestMain must call lab.Main")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &Subscriber{t: t, cmd: exec.Command(self)}
	s.cmd.Env = append(os.Environ(), subscriberEnv+"="+socket)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	startRead(t, s.cmd, s.read)
	Eventually(t, 10*time.Second, "the subscriber has called", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.opened {
			return errors.New("it has not")
		}
		return nil
	})
	return s
}

func (s *Subscriber) read(r io.Reader) {
	dec := json.NewDecoder(r)
	for {
		var line subscriberLine
		if dec.Decode(&line) != nil {
			return
		}
		s.mu.Lock()
		s.opened = s.opened || line.Opened
		if line.Event != nil {
			s.events = append(s.events, *line.Event)
		}
		if line.Error != "" {
			s.err = line.Error
		}
		s.mu.Unlock()
	}
}

// Pid is its process id.
func (s *Subscriber) Pid() int { return s.cmd.Process.Pid }

// Freeze stops it: it reads nothing from then on.
func (s *Subscriber) Freeze() { Freeze(s.t, s.Pid()) }

// Thaw lets it go on.
func (s *Subscriber) Thaw() { Thaw(s.t, s.Pid()) }

// Events are those that it was told, in their order.
func (s *Subscriber) Events() []RuntimeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]RuntimeEvent(nil), s.events...)
}

// Freeze stops a process that the lab has started, and returns when it has
// stopped.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("lab: stop process %d: %v", pid, err)
	}
	Eventually(t, 5*time.Second, "the process is stopped", func() error {
		if state := processState(pid); state != "T" {
			return fmt.Errorf("process %d is in state %q", pid, state)
		}
		return nil
	})
}

// Thaw lets a stopped process go on.
func Thaw(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatalf("lab: continue process %d: %v", pid, err)
	}
}

// subscriberMain is a subscriber's process.
func subscriberMain() int {
	out := json.NewEncoder(os.Stdout)
	err := subscribe(os.Getenv(subscriberEnv), out)
	_ = out.Encode(subscriberLine{Error: err.Error()})
	return 1
}

func subscribe(socket string, out *json.Encoder) error {
	r, err := dialCRI(socket)
	if err != nil {
		return err
	}
	stream, err := r.runtime.GetContainerEvents(context.Background(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	// A runtime sends nothing before the first event, so there is nothing that
	// shows that it has taken the subscription: a call after it has come back.
	if _, err := r.version(context.Background()); err != nil {
		return err
	}
	_ = out.Encode(subscriberLine{Opened: true})
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		name := runtimeapi.ContainerEventType_name[int32(e.GetContainerEventType())]
		name = name[len("CONTAINER_") : len(name)-len("_EVENT")]
		_ = out.Encode(subscriberLine{Event: &RuntimeEvent{
			ID: e.GetContainerId(), Type: name, CreatedAt: time.Unix(0, e.GetCreatedAt()), At: time.Now(),
			Sandbox: e.GetPodSandboxStatus().GetId() == e.GetContainerId(),
		}})
	}
}
