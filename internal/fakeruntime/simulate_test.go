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
