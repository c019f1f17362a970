//go:build e2e

package waiting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

func ready() { fmt.Println("ready") }

// run runs a mode: a process with several threads, as every Go program has.
func run(mode string, args []string) error {
	switch mode {
	case "trace":
		return lab.TraceAll(args[0], ready)
	case "tracepollers":
		return lab.TracePollers(args[0], ready)
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
	case "open": // a thread of its own opens a FIFO
		threads()
		go func() { _, _ = os.Open(args[0]) }()
		ready()
		select {}
	case "opens": // threads of its own open, make and remove a file of a directory
		threads()
		go func() { _, _ = os.Open(args[0] + "/file") }()
		go func() { _ = os.Mkdir(args[0]+"/made", 0o755) }()
		go func() { _ = os.Remove(args[0] + "/removed") }()
		ready()
		select {}
	case "pipe": // reads from its first descriptor after the usual ones, by epoll(7)
		threads()
		if err := unix.SetNonblock(3, true); err != nil {
			return err
		}
		r := os.NewFile(3, "pipe")
		ready()
		_, _ = r.Read(make([]byte, 1))
		return nil
	case "terminal": // makes one, and a link to its other end
		return terminal(args[0])
	case "supervise":
		return supervise()
	case "plugin": // permits all requests of dockerd
		return servePlugin(args[0])
	case "mute": // is a server of HTTP that reads all requests, and never answers
		return serveMute(args[0])
	case "deaf": // listens, and takes no connections
		return listenToNobody(args[0])
	case "fault": // touches memory whose pages a child is to supply
		return fault()
	case "inherit": // holds the listening socket of a process
		return inherit(args[0])
	}
	return fmt.Errorf("unknown mode")
}

// inherit takes the listening socket of a process with a path, as a child that it has started has it, and keeps it.
func inherit(pid string) error {
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(n, 0)
	for fd := 0; err == nil && fd < 256; fd++ {
		own, getErr := unix.PidfdGetfd(pidfd, fd, 0)
		if getErr != nil {
			continue
		}
		address, nameErr := unix.Getsockname(own)
		listens, _ := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if path, ok := address.(*unix.SockaddrUnix); nameErr != nil || !ok || listens == 0 || strings.HasSuffix(path.Name, ".ttrpc") {
			_ = unix.Close(own)
		}
	}
	ready()
	time.Sleep(time.Hour)
	return err
}

// servePlugin serves an authorization plugin of dockerd at a socket.
func servePlugin(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := http.Server{ReadHeaderTimeout: time.Minute}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"Allow": true}`
		if r.URL.Path == "/Plugin.Activate" {
			answer = `{"Implements": ["authz"]}`
		}
		_, _ = io.WriteString(w, answer)
	})
	ready()
	return server.Serve(listener)
}

// listenToNobody listens at an address with a full queue: the kernel does not answer an attempt to connect.
func listenToNobody(address string) error {
	parsed, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	place := &unix.SockaddrInet4{Port: parsed.Port, Addr: [4]byte(parsed.IP.To4())}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(listener, place), unix.Listen(listener, 0)); err != nil {
		return err
	}
	for range 4 { // more than fit
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(client, place)
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
	}
	ready()
	select {}
}

// serveMute serves an address without an answer. A client that begins with TLS is refused, and comes back without it.
func serveMute(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ready()
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			const handshake = 0x16 // the first byte of TLS
			first := make([]byte, 1)
			_, _ = io.ReadFull(client, first)
			if first[0] == handshake {
				_, _ = io.WriteString(client, "HTTP/1.0 400 Bad Request\r\n\r\n")
				_ = client.Close()
				return
			}
			_, _ = io.Copy(io.Discard, client)
		}()
	}
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

// terminal makes a pseudo terminal whose output it does not read.
func terminal(link string) error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	if err := os.Symlink(fmt.Sprintf("/dev/pts/%d", number), link); err != nil {
		return err
	}
	ready()
	select {}
}

// supervise starts a process whose getpriority(2) waits for an answer that never comes.
func supervise() error {
	runtime.LockOSThread() // the filter is this thread's
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPRIORITY, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	cmd := exec.Command("perl", "-e", "getpriority(0,0)")
	if err := cmd.Start(); err != nil {
		return err
	}
	ready()
	time.Sleep(time.Hour)
	return nil
}

// fault reads memory of a userfaultfd that a child has, too.
func fault() error {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return errno
	}
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	handshake := [3]uint64{0xaa} // struct uffdio_api, struct uffdio_register
	register := [4]uint64{uint64(uintptr(unsafe.Pointer(&memory[0]))), uint64(len(memory)), 1}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, 0xc018aa3f, uintptr(unsafe.Pointer(&handshake)))
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, 0xc020aa00, uintptr(unsafe.Pointer(&register)))
	if errno != 0 {
		return errno
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = []*os.File{os.NewFile(fd, "userfaultfd")}
	child.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread()
	if err := child.Start(); err != nil {
		return err
	}
	ready()
	var pipe [2]int // nobody else's: the call keeps it locked
	err = unix.Pipe2(pipe[:], unix.O_CLOEXEC)
	if err == nil {
		_, err = unix.Write(pipe[1], memory) // Go's scheduler would interrupt a fault outside of a call
	}
	return err
}

// serveNothing mounts a FUSE file system and answers only the kernel's greeting; with reads it reads the requests.
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
