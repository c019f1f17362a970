package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// lines are the lines that a command has written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- strings.TrimSuffix(string(p), "\n")
	return len(p), nil
}

// TestSimulate serves a runtime beside what a dead one has left, changes its failpoints by the
// other command, also while a call hangs, and ends it.
func TestSimulate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	paths := []string{socket, fakeruntime.ControlSocket(socket)}
	for _, path := range paths {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		must.Do(t, err)
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, code := make(lines, 100), make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"simulate", "--socket", socket, "--pods=7", "--containers=3", "--failpoints=Status=1*error(Internal)"}, said, said)
	}()
	if first, want := <-said, "serving runtime.v1 at unix://"+socket+": 7 pods with 3 containers each; failpoints: Status=1*error(Internal)"; first != want {
		t.Fatalf("first line\n%s\nwant\n%s", first, want)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, info.Mode(), err)
		}
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Do(t, err)
	defer conn.Close()
	c := runtimeapi.NewRuntimeServiceClient(conn)
	list := func(limit time.Duration) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		all, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return len(all.GetContainers()), err
	}
	if n, err := list(20 * time.Second); n != 21 || err != nil {
		t.Errorf("%d containers, %v; want 21", n, err)
	}
	if _, err := c.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("Status: %v", err)
	}
	hung := make(chan error, 1)
	for _, tt := range []struct {
		args       []string
		code       int
		want, said string // printed by the command, and by simulate
		then       func()
	}{
		{[]string{"failpoints", "ListContainers=hang"}, 0, "ListContainers=hang\n", "failpoints: ListContainers=hang", func() {
			go func() { _, err := list(20 * time.Second); hung <- err }()
			if _, err := list(200 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("the list does not hang: %v", err)
			}
		}},
		{[]string{"failpoints"}, 0, "ListContainers=hang\n", "", nil},
		{[]string{"failpoints", "off"}, 1, `"off": want name=term`, "", nil},
		{[]string{"failpoints", ""}, 0, "\n", "failpoints: none", func() {
			check.NoError(t, <-hung, "after the failpoint went")
		}},
		{nil, 1, "is in use", "", nil}, // a second one
	} {
		got, out, errs := plegd(t, append([]string{"simulate", "--socket", socket}, tt.args...)...)
		if got != tt.code || !strings.Contains(out+errs, tt.want) || strings.Count(out+errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", tt.args, got, out, errs)
		}
		if tt.said != "" {
			check.Equal(t, <-said, tt.said, "its output")
			tt.then()
		}
	}
	cancel()
	check.Equal(t, <-code, 0, "exit after the signal")
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind: %v", path, err)
		}
	}
	if code, _, errs := plegd(t, "simulate", "failpoints", "--socket", socket); code != 1 || !strings.Contains(errs, "is plegd simulate running there?") {
		t.Errorf("after the end: exit %d, %s", code, errs)
	}
}

// TestInstall copies the program that runs, over an older one too, and leaves nothing else.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "plegd"), []byte("old"), 0o644))
	must.Do(t, install(dir))
	got, err := os.ReadFile(filepath.Join(dir, "plegd"))
	must.Do(t, err)
	want, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	if !bytes.Equal(got, want) {
		t.Error("it is not the program that runs")
	}
	info, err := os.Stat(filepath.Join(dir, "plegd"))
	must.Do(t, err)
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	if info.Mode().Perm() != 0o755 || len(entries) != 1 {
		t.Errorf("the mode is %v, the directory holds %v", info.Mode(), entries)
	}
	if err := install(filepath.Join(dir, "missing")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}
