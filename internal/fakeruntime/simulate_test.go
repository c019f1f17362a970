package fakeruntime_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// simulate runs Simulate until the test ends and returns the lines it writes.
func simulate(t *testing.T, opts fakeruntime.SimulateOptions) (lines <-chan string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(lineWriter, 100)
	done := make(chan error, 1)
	go func() {
		done <- fakeruntime.Simulate(ctx, opts, out)
		close(out)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return out, stop
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- strings.TrimSuffix(string(p), "\n")
	return len(p), nil
}

func TestSimulate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	for _, path := range []string{socket, fakeruntime.ControlSocket(socket)} { // as a dead process leaves them
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	lines, stop := simulate(t, fakeruntime.SimulateOptions{Socket: socket, Pods: 7, Containers: 3, Failpoints: "Status=1*error(Internal)"})
	if first, want := <-lines, "serving runtime.v1 at unix://"+socket+": 7 pods with 3 containers each; failpoints: Status=1*error(Internal)"; first != want {
		t.Fatalf("first line\n%s\nwant\n%s", first, want)
	}
	for _, path := range []string{socket, fakeruntime.ControlSocket(socket)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, info.Mode(), err)
		}
	}
	cc, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	c := runtimeapi.NewRuntimeServiceClient(cc)
	ctx := within(t, 20*time.Second)
	if n, err := list(ctx, c); n != 21 || err != nil {
		t.Errorf("%d containers, %v; want 21", n, err)
	}
	_, err = c.Status(ctx, &runtimeapi.StatusRequest{})
	wantStatus(t, err, codes.Internal, "failpoint")

	// Changed while a call hangs.
	set := func(spec string) {
		t.Helper()
		got, err := fakeruntime.WriteFailpoints(ctx, socket, spec)
		if err != nil || got != spec {
			t.Errorf("set %q: %q, %v", spec, got, err)
		}
		want := "failpoints: " + spec
		if spec == "" {
			want += "none"
		}
		if line := <-lines; line != want {
			t.Errorf("said %q, want %q", line, want)
		}
	}
	set("ListContainers=hang")
	hung := make(chan error, 1)
	if got, err := fakeruntime.ReadFailpoints(ctx, socket); got != "ListContainers=hang" || err != nil {
		t.Errorf("read back %q, %v", got, err)
	}
	go func() {
		_, err := list(ctx, c)
		hung <- err
	}()
	_, err = list(within(t, 200*time.Millisecond), c)
	wantStatus(t, err, codes.DeadlineExceeded, "")
	set("")
	if err := <-hung; err != nil {
		t.Errorf("after the failpoint went: %v", err)
	}
	_, err = fakeruntime.WriteFailpoints(ctx, socket, "Status=hung")
	if err == nil || !strings.Contains(err.Error(), `type "hung": want one of off, error`) {
		t.Errorf("a wrong failpoint: %v", err)
	}

	// A second one does not take the socket away.
	err = fakeruntime.Simulate(ctx, fakeruntime.SimulateOptions{Socket: socket}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a second simulate: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("Simulate: %v", err)
	}
	for _, path := range []string{socket, fakeruntime.ControlSocket(socket)} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind: %v", path, err)
		}
	}
	if _, err := fakeruntime.ReadFailpoints(ctx, socket); err == nil || !strings.Contains(err.Error(), "is plegd simulate running there?") {
		t.Errorf("after the end: %v", err)
	}
}

func TestSimulateChurns(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	lines, _ := simulate(t, fakeruntime.SimulateOptions{Socket: socket, Pods: 2, Containers: 1, Churn: 1})
	<-lines
	cc, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ctx, c := within(t, 20*time.Second), runtimeapi.NewRuntimeServiceClient(cc)
	events, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}
	if n, err := list(ctx, c); n <= 2 || err != nil {
		t.Errorf("%d containers, %v; want the dead ones too", n, err)
	}
}

func TestSimulateErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := fakeruntime.SimulateOptions{Socket: filepath.Join(dir, "s"), Pods: 1, Containers: 1}
	for want, change := range map[string]func(*fakeruntime.SimulateOptions){
		`--socket "": want the path of the socket to serve at`:                                                func(o *fakeruntime.SimulateOptions) { o.Socket = "" },
		`--socket ` + file + `: ` + file + ` exists and is no socket; want a path that is free`:               func(o *fakeruntime.SimulateOptions) { o.Socket = file },
		`--socket ` + dir + `/no/s: directory ` + dir + `/no does not exist; make it, or choose another path`: func(o *fakeruntime.SimulateOptions) { o.Socket = filepath.Join(dir, "no", "s") },
		`--pods -1: want 0 to 100000`: func(o *fakeruntime.SimulateOptions) { o.Pods = -1 },
		`--pods 100000 with --containers 11: want at most 1000000 containers in all`:                                           func(o *fakeruntime.SimulateOptions) { o.Pods, o.Containers = 100_000, 11 },
		`--churn 1.5: want a fraction of the pods a second, 0 to 1`:                                                            func(o *fakeruntime.SimulateOptions) { o.Churn = 1.5 },
		`--failpoints: failpoint "Stat": no such call; want a call of runtime.v1 such as ListContainers, * for all, or socket`: func(o *fakeruntime.SimulateOptions) { o.Failpoints = "Stat=hang" },
	} {
		opts := good
		change(&opts)
		err := fakeruntime.Simulate(t.Context(), opts, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "s*")); len(left) > 0 {
			t.Errorf("%s: left behind %v", want, left)
		}
	}
}
