//go:build e2e

package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// simulatedEnv names the socket of the simulated runtime in the environment of the
// process that is one, and is unset everywhere else.
const simulatedEnv = "PLEGD_KUBELET_SIMULATED"

const (
	simulatedPods       = 80
	simulatedContainers = 1
)

// order is one order to the simulated runtime over its control socket.
type order struct {
	// Failpoints, unless nil, replace the failpoints.
	Failpoints *string `json:"failpoints,omitempty"`
	// Restart is in how many pods a container is to be restarted.
	Restart int `json:"restart,omitempty"`
	// End is in how many more pods a container ends for good.
	End int `json:"end,omitempty"`
	// Stuck, unless nil, is of how many pods the container's status hangs; a
	// container of each of them ends, so that it is inspected.
	Stuck *int `json:"stuck,omitempty"`
}

// simulated is the simulated runtime that `plegd simulate` serves, in a process of its own on the node, with what the
// comparison needs besides: changes of many pods at one moment, and single pods whose status hangs.
type simulated struct {
	Socket string

	t       testing.TB
	node    *lab.Node
	log     string
	process *lab.NodeProcess
	http    *http.Client
}

// newSimulated starts one on a node.
func newSimulated(t testing.TB, node *lab.Node, dir string) *simulated {
	t.Helper()
	s := &simulated{t: t, node: node, Socket: filepath.Join(dir, "runtime.sock"), log: filepath.Join(dir, "runtime.log")}
	s.http = lab.UnixClient(controlSocket(s.Socket), 5*time.Second)
	s.start()
	return s
}

func (s *simulated) start() {
	s.t.Helper()
	self, err := os.Executable()
	lab.Must(s.t, err)
	s.process = s.node.StartWith(append(os.Environ(), simulatedEnv+"="+s.Socket), s.log, self)
	lab.Eventually(s.t, 10*time.Second, "the simulated runtime serves", func() error { return s.send(order{}) })
}

// Restart kills the process and starts another one, with other pods.
func (s *simulated) Restart() {
	s.t.Helper()
	s.process.Kill()
	for _, socket := range []string{s.Socket, controlSocket(s.Socket)} {
		lab.Must(s.t, os.RemoveAll(socket))
	}
	s.start()
}

func controlSocket(socket string) string { return socket + ".control" }

// Do sends an order, or ends the test.
func (s *simulated) Do(o order) {
	s.t.Helper()
	if err := s.send(o); err != nil {
		s.t.Fatalf("order %+v to the simulated runtime: %v", o, err)
	}
}

// Fail replaces the failpoints; empty: none.
func (s *simulated) Fail(spec string) {
	s.t.Helper()
	s.Do(order{Failpoints: &spec})
}

func (s *simulated) send(o order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	resp, err := s.http.Post("http://simulated/", "application/json", bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}

// simulatedMain is the process of a simulated runtime.
func simulatedMain(socket string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := &simulatedServer{runtime: fakeruntime.New(fakeruntime.Options{Seed: uint64(time.Now().UnixNano())})}
	s.pods = s.runtime.FillPods(simulatedPods, simulatedContainers)
	s.release()
	s.runtime.SetHook("ContainerStatus", s.hook)
	l, err := net.Listen("unix", controlSocket(socket))
	if err == nil {
		err = s.runtime.Listen(socket)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.runtime.Stop()
	go func() { _ = http.Serve(l, s) }() // it ends with the process
	<-ctx.Done()
	return 0
}

type simulatedServer struct {
	runtime *fakeruntime.Runtime
	pods    []fakeruntime.Pod

	mu       sync.Mutex
	stuck    map[string]bool // the containers whose status hangs
	released chan struct{}   // closed when they are released
	ended    int             // in how many pods a container has ended for good
}

func (s *simulatedServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released != nil {
		close(s.released)
	}
	s.stuck, s.released = map[string]bool{}, make(chan struct{})
}

// hook makes the status of a stuck container hang.
func (s *simulatedServer) hook(ctx context.Context, request any) error {
	r, _ := request.(*runtimeapi.ContainerStatusRequest)
	s.mu.Lock()
	stuck, released := s.stuck[r.GetContainerId()], s.released
	s.mu.Unlock()
	if !stuck {
		return nil
	}
	select {
	case <-released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeHTTP carries out one order.
func (s *simulatedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	err := json.NewDecoder(r.Body).Decode(&o)
	if err == nil && o.Failpoints != nil {
		err = s.runtime.SetFailpoints(*o.Failpoints)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.Restart > 0 {
		s.runtime.Churn(float64(o.Restart) / float64(len(s.pods)))
	}
	if o.End > 0 {
		s.exit(s.pods[s.ended:s.ended+o.End], func(string) {})
		s.ended += o.End
	}
	if o.Stuck != nil {
		s.release()
		s.exit(s.pods[:*o.Stuck], s.stick)
	}
}

// stick makes the status of a container hang.
func (s *simulatedServer) stick(container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck[container] = true
}

// exit ends the containers of some pods, each of which it passes to a function before.
func (s *simulatedServer) exit(pods []fakeruntime.Pod, before func(container string)) {
	_, containers := s.runtime.Snapshot()
	for _, p := range pods {
		for _, c := range containers {
			if c.GetLabels()["io.kubernetes.pod.uid"] == p.UID && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				before(c.GetId())
				s.runtime.ExitContainer(c.GetId(), 137, "Error")
			}
		}
	}
}
