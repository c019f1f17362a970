package stacks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/must"
)

// The test binary is a runtime where its name is one's: it serves a dump on a debug socket,
// and writes one to a file when a signal asks it to.
func TestMain(m *testing.M) {
	if socket := os.Getenv("PLEGD_TEST_RUNTIME"); socket != "" {
		fakeRuntime(socket)
		return
	}
	os.Exit(m.Run())
}

const servedDump = "goroutine 1 [select]:\nmain.main()\n\t/m.go:1 +0x1\n"

func fakeRuntime(socket string) {
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, unix.SIGUSR1)
	if socket != "none" {
		l, err := net.Listen("unix", socket)
		if err != nil {
			panic(err)
		}
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, servedDump) }))
		}()
	}
	fmt.Println("ready")
	for range usr1 {
		file := filepath.Join(os.TempDir(), fmt.Sprintf("containerd.%d.stacks.log", os.Getpid()))
		_ = os.WriteFile(file, []byte(servedDump), 0o600)
	}
}

// start runs the test binary under a name and returns its pid and its directory.
func start(t *testing.T, name, socket string) (pid int, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's processes are runtimes")
	}
	dir = t.TempDir()
	own, err := os.Executable()
	must.Do(t, err)
	text, err := os.ReadFile(own)
	must.Do(t, err)
	exe := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(exe, text, 0o755))
	cmd := exec.Command(exe)
	if socket != "none" {
		socket = filepath.Join(dir, socket)
	}
	cmd.Env = []string{"PLEGD_TEST_RUNTIME=" + socket, "TMPDIR=" + dir}
	_, out := must.Start(t, cmd)
	ready := make([]byte, len("ready"))
	_, err = io.ReadFull(out, ready)
	must.Do(t, err)
	return cmd.Process.Pid, dir
}

// TestRead: a dump that is served comes before a file, and a program of another name has none.
func TestRead(t *testing.T) {
	r := &Reader{Table: proc.NewTable("/proc")}
	t.Run("served", func(t *testing.T) {
		pid, dir := start(t, "containerd", "debug.sock")
		found, err := r.Read(t.Context(), Target{PID: pid})
		if err != nil || string(found.Text) != servedDump || !strings.HasSuffix(found.Source, dir+"/debug.sock"+cri.PageGoroutines) {
			t.Errorf("%+v, %v", found, err)
		}
	})
	t.Run("after a signal", func(t *testing.T) {
		pid, dir := start(t, "containerd", "none")
		if _, err := r.Read(t.Context(), Target{PID: pid}); !errors.Is(err, ErrNone) {
			t.Errorf("before any: %v", err)
		}
		for range 2 { // the second replaces the first's file
			found, err := r.Signal(t.Context(), pid)
			if err != nil || string(found.Text) != servedDump {
				t.Fatalf("%+v, %v", found, err)
			}
		}
		file := filepath.Join(dir, fmt.Sprintf("containerd.%d.stacks.log", pid))
		found, err := r.Read(t.Context(), Target{PID: pid})
		if err != nil || found.Source != file {
			t.Errorf("its file: %+v, %v", found, err)
		}
		must.Do(t, os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)))
		if _, err := r.Read(t.Context(), Target{PID: pid}); !errors.Is(err, ErrNone) {
			t.Errorf("a file from before its start: %v", err)
		}
	})
	t.Run("files that another user could have made", func(t *testing.T) {
		pid, dir := start(t, "containerd", "none")
		file := filepath.Join(dir, fmt.Sprintf("containerd.%d.stacks.log", pid))
		target := filepath.Join(dir, "target")
		must.Do(t, os.WriteFile(target, []byte(servedDump), 0o600))
		for name, make := range map[string]func() error{
			"a link": func() error { return os.Symlink(target, file) },
			"another user's": func() error {
				return errors.Join(os.WriteFile(file, []byte(servedDump), 0o600), os.Chown(file, 65534, -1))
			},
			"writable by anybody": func() error { return errors.Join(os.WriteFile(file, []byte(servedDump), 0o600), os.Chmod(file, 0o666)) },
			"a directory":         func() error { return os.Mkdir(file, 0o755) },
		} {
			must.Do(t, make())
			if found, err := r.Read(t.Context(), Target{PID: pid}); !errors.Is(err, ErrNone) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
			must.Do(t, os.Remove(file))
		}
	})
	t.Run("another program", func(t *testing.T) {
		pid, _ := start(t, "other", "debug.sock")
		if _, err := r.Read(t.Context(), Target{PID: pid}); err == nil || !strings.Contains(err.Error(), "other") {
			t.Errorf("%v", err)
		}
		if _, err := r.Signal(t.Context(), pid); err == nil {
			t.Error("it got a signal")
		}
	})
}

// TestSignalEndsNothing: a program with a runtime's name and without a handler gets no signal.
func TestSignalEndsNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's processes are runtimes")
	}
	sleep, err := exec.LookPath("sleep")
	must.Do(t, err)
	text, err := os.ReadFile(sleep)
	must.Do(t, err)
	exe := filepath.Join(t.TempDir(), "dockerd")
	must.Do(t, os.WriteFile(exe, text, 0o755))
	cmd := exec.Command(exe, "60")
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r := &Reader{Table: proc.NewTable("/proc")}
	if _, err := r.Signal(t.Context(), cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "dockerd") {
		t.Errorf("%v", err)
	}
	if _, err := r.Describe(t.Context(), cmd.Process.Pid); err == nil {
		t.Error("a signal is offered that it would not get")
	}
	if _, err := r.Table.Alive(cmd.Process.Pid); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}
