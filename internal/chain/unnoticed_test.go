package chain

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestUnnoticed: the stopped reader of a FIFO is named, unless another one reads from it, too.
func TestUnnoticed(t *testing.T) {
	for name, tt := range map[string]struct {
		readers, stopped int
		want             bool
	}{
		"stopped":           {readers: 1, stopped: 1, want: true},
		"reads":             {readers: 1},
		"another one reads": {readers: 2, stopped: 1},
		"it has ended":      {},
		"two are stopped":   {readers: 2, stopped: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			must.Do(t, unix.Mkfifo(file, 0o600))
			var readers []int
			for range tt.readers {
				cmd := exec.Command("sleep", "100")
				both, err := os.OpenFile(file, os.O_RDWR, 0)
				must.Do(t, err)
				cmd.Stdin, err = os.Open(file)
				must.Do(t, err)
				must.Do(t, cmd.Start())
				must.Do(t, both.Close())
				must.Do(t, cmd.Stdin.(*os.File).Close())
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				readers = append(readers, cmd.Process.Pid)
			}
			flags := os.O_WRONLY
			if tt.readers == 0 {
				flags = os.O_RDWR
			}
			writer := exec.Command("sleep", "100")
			out, err := os.OpenFile(file, flags, 0)
			must.Do(t, err)
			writer.Stdout = out
			must.Do(t, writer.Start())
			must.Do(t, out.Close())
			t.Cleanup(func() { _ = writer.Process.Kill(); _ = writer.Wait() })
			for _, pid := range readers[:tt.stopped] {
				must.Do(t, syscall.Kill(pid, syscall.SIGSTOP))
				awaitStop(t, pid)
			}
			c := New(proc.NewTable("/proc"), "/sys", nil).Unnoticed(t.Context(), Debt{Evidence: "late"}, []int{os.Getpid(), writer.Process.Pid})
			if !tt.want {
				check.Equal(t, len(c.Links), 0, "the links: %+v", c)
				return
			}
			check.Equal(t, len(c.Links), 2, "the links: %+v", c)
			check.Equal(t, c.Links[1].PID, readers[0], "the culprit")
			check.Equal(t, c.Links[1].State, facts.LinkStopped, "its state")
			check.Equal(t, strings.Contains(c.Links[0].Evidence, file), true, "the FIFO is in %q", c.Links[0].Evidence)
		})
	}
}

// TestUnnoticedClient: a client that does not read from its connection is named, although it merely sleeps.
func TestUnnoticedClient(t *testing.T) {
	for name, isFull := range map[string]bool{"does not read": true, "has little to read": false} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must.Do(t, err)
			defer func() { _ = listener.Close() }()
			client, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
			must.Do(t, err)
			server, err := listener.AcceptTCP()
			must.Do(t, err)
			defer func() { _ = server.Close() }()
			f, err := client.File()
			must.Do(t, err)
			must.Do(t, client.Close())
			cmd := exec.Command("sleep", "100")
			cmd.ExtraFiles = []*os.File{f}
			must.Do(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			must.Do(t, f.Close())
			must.Do(t, server.SetWriteDeadline(time.Now().Add(time.Second)))
			size := 100
			if isFull {
				size = 64 << 20
			}
			_, _ = server.Write(make([]byte, size)) // until the deadline
			c := New(proc.NewTable("/proc"), "/sys", nil).Unnoticed(t.Context(), Debt{Evidence: "late"}, []int{os.Getpid()})
			if !isFull {
				check.Equal(t, len(c.Links), 0, "the links: %+v", c)
				return
			}
			check.Equal(t, len(c.Links), 2, "the links: %+v", c)
			check.Equal(t, c.Links[1].PID, cmd.Process.Pid, "the culprit")
		})
	}
}

// awaitStop waits until a process is stopped.
func awaitStop(t *testing.T, pid int) {
	t.Helper()
	for range 100 {
		p, err := proc.ReadStat("/proc", pid)
		must.Do(t, err)
		if p.State == 'T' {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it does not stop")
}
