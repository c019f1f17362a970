//go:build e2e

package lab

import (
	"bufio"
	order "encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Volume is a mounted FUSE file system with one directory, "data", whose server, a
// process of its own, can be made to answer nothing more.
type Volume struct {
	// Server is the pid of its server.
	Server int

	t      testing.TB
	stdin  io.Writer
	stdout *bufio.Reader
	end    func()
}

// volumeEnv is set in the environment of a volume's server.
const volumeEnv = "PLEGD_LAB_VOLUME"

// NewVolume mounts one at dir, in the runtime's namespace too.
func (c *Containerd) NewVolume(dir string) *Volume {
	c.t.Helper()
	f, closed := c.mountFUSE(dir)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), volumeEnv+"=1")
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	must(c.t, err)
	stdout, err := cmd.StdoutPipe()
	must(c.t, err)
	must(c.t, cmd.Start())
	closed() // the server alone has it
	v := &Volume{Server: cmd.Process.Pid, t: c.t, stdin: stdin, stdout: bufio.NewReader(stdout)}
	v.end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c.t.Cleanup(v.end)
	return v
}

// SilentAfter lets the server answer that many lookups of the directory, and nothing
// after them. It is for once.
func (v *Volume) SilentAfter(lookups int) {
	v.t.Helper()
	_, err := fmt.Fprintln(v.stdin, lookups)
	must(v.t, err)
	_, err = v.stdout.ReadString('\n')
	must(v.t, err)
}

// End ends the server: processes that wait for it get an error.
func (v *Volume) End() { v.end() }

// volumeMain is the server's main function. Its fourth descriptor is the file system.
func volumeMain() int {
	var left atomic.Int64
	left.Store(-1)
	go serveVolume(3, &left)
	var n int64
	if _, err := fmt.Scanln(&n); err != nil {
		return 0
	}
	left.Store(n)
	fmt.Println(n)
	for { // it waits for nothing that could be taken for a reason of its silence
		time.Sleep(time.Hour)
	}
}

// Requests of the kernel, as linux/fuse.h numbers them.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42

	fuseRoot, fuseData = 1, 2
	fuseHeaderIn       = 40
	fuseHeaderOut      = 16
)

// serveVolume answers as many lookups as are left, below 0 all of them, and then
// nothing more.
func serveVolume(fd int, lookups *atomic.Int64) {
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, b)
		if err != nil || n < fuseHeaderIn {
			return
		}
		opcode, node := order.NativeEndian.Uint32(b[4:]), order.NativeEndian.Uint64(b[16:])
		if opcode == fuseLookup {
			switch left := lookups.Load(); {
			case left == 0:
				return
			case left > 0:
				lookups.Store(left - 1)
			}
		}
		if opcode == fuseForget || opcode == fuseBatchForget || opcode == fuseInterrupt {
			continue
		}
		var body []byte
		var errno unix.Errno
		switch opcode {
		case fuseInit:
			body = make([]byte, 64)
			order.NativeEndian.PutUint32(body, 7)
			order.NativeEndian.PutUint32(body[4:], 31)
			order.NativeEndian.PutUint32(body[20:], 4096) // largest write
		case fuseGetattr:
			body = append(make([]byte, 16), directory(node)...)
		case fuseLookup: // nothing that it returns may be kept
			if string(b[fuseHeaderIn:n]) != "data\x00" {
				errno = unix.ENOENT
				break
			}
			body = append(make([]byte, 40), directory(fuseData)...)
			order.NativeEndian.PutUint64(body, fuseData)
		default:
			errno = unix.ENOSYS
		}
		out := make([]byte, fuseHeaderOut, fuseHeaderOut+len(body))
		order.NativeEndian.PutUint32(out, uint32(fuseHeaderOut+len(body)))
		order.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
		copy(out[8:], b[8:16]) // the request's number
		_, _ = unix.Write(fd, append(out, body...))
	}
}

// directory is the fuse_attr of a directory.
func directory(node uint64) []byte {
	attr := make([]byte, 88)
	order.NativeEndian.PutUint64(attr, node)
	order.NativeEndian.PutUint32(attr[60:], unix.S_IFDIR|0o755)
	order.NativeEndian.PutUint32(attr[64:], 2) // links
	return attr
}
