//go:build e2e

package chain

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	walk "github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
)

func ready() { fmt.Println("ready") }

// helper is a process with several threads, as every Go program has.
func helper(mode string, args []string) error {
	switch mode {
	case "trace":
		return lab.TraceAll(args[0], ready)
	case "flocks": // a thread of its own waits for each file
		threads()
		for _, file := range args {
			f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			go func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
		}
		ready()
		select {}
	case "dial": // has sent, by a socket that does not block, and waits for the answer
		threads()
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, "a question"); err != nil {
			return err
		}
		ready()
		_, _ = c.Read(make([]byte, 1))
		return nil
	case "deadlock":
		threads()
		go func() { time.Sleep(time.Hour) }() // or the Go runtime reports a deadlock
		ready()
		var a, b sync.Mutex
		a.Lock()
		b.Lock()
		go a.Lock()
		b.Lock()
		return nil
	case "vfork":
		ready()
		return exec.Command(args[0]).Run()
	case "fuse":
		return serveNothing(args[0], false)
	case "fusereads": // takes the requests, and waits for the next one
		return serveNothing(args[0], true)
	case "fanotify": // permits nothing
		threads()
		return lab.PermitNothing(args[0], ready)
	case "walk": // what somebody without privilege sees
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		w := walk.New(proc.NewTable("/proc"), "/sys", nil)
		return json.NewEncoder(os.Stdout).Encode(w.Process(context.Background(), pid))
	}
	return fmt.Errorf("unknown mode")
}

// threads makes some threads that wait.
func threads() {
	for range 8 {
		go func() {
			runtime.LockOSThread()
			var fds [2]int
			_ = unix.Pipe2(fds[:], unix.O_CLOEXEC)
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}, -1)
		}()
	}
}

// serveNothing mounts a FUSE file system and answers only the kernel's greeting; with
// reads it reads the requests.
func serveNothing(dir string, reads bool) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("plegd-test", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	n, err := unix.Read(fd, b)
	if err != nil || n < 40 {
		return fmt.Errorf("read the greeting: %d bytes, %w", n, err)
	}
	out := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(out, uint32(len(out)))
	copy(out[8:], b[8:16]) // the request's number
	binary.NativeEndian.PutUint32(out[16:], 7)
	binary.NativeEndian.PutUint32(out[20:], 31)
	binary.NativeEndian.PutUint32(out[36:], 4096)
	if _, err := unix.Write(fd, out); err != nil {
		return err
	}
	ready()
	for reads {
		if _, err := unix.Read(fd, b); err != nil {
			return err
		}
	}
	select {}
}
