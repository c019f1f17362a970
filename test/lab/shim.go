//go:build e2e

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A shim that sleeps in itself cannot be made from outside of a real one. So a
// process of the lab's takes the shim's place: it has its name, its arguments and its
// socket, passes everything on to the real one (under another name), and reads
// nothing more while a file is there.

const (
	// shimEnv names the directory of the program in the environment of a containerd.
	shimEnv = "PLEGD_LAB_SHIM"
	// shimProxyEnv is the path of the real shim's socket, in the environment of the
	// process in its place.
	shimProxyEnv = "PLEGD_LAB_SHIM_SOCKET"
	shimName     = "containerd-shim-runc-v2"
	realShim     = "realshim"
)

// prepareShim puts the program in the shim's place, and returns what the environment
// of containerd needs.
func prepareShim(t testing.TB, dir, real string) []string {
	t.Helper()
	bin := filepath.Join(dir, "shim")
	must(t, os.Mkdir(bin, 0o755))
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, filepath.Join(bin, shimName)))
	// A copy: by a link it would start itself under its usual name.
	program, err := os.ReadFile(real)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(bin, realShim), program, 0o755))
	return []string{shimEnv + "=" + bin, "PATH=" + strings.Join([]string{bin, filepath.Dir(real), os.Getenv("PATH")}, string(os.PathListSeparator))}
}

// StopReading makes the shim of a pod read nothing more, and returns what ends that.
// It needs ContainerdOptions.OwnShim.
func (c *Containerd) StopReading(p *Pod) (end func()) {
	c.t.Helper()
	flag := filepath.Join(filepath.Dir(c.Socket), "shim", p.ID)
	must(c.t, os.WriteFile(flag, nil, 0o644))
	return func() { _ = os.Remove(flag) }
}

// shimMain is the shim's program.
func shimMain() int {
	bin := os.Getenv(shimEnv)
	real := filepath.Join(bin, realShim)
	var err error
	switch {
	case os.Getenv(shimProxyEnv) != "":
		err = proxyShim(bin)
	case len(os.Args) > 1 && os.Args[len(os.Args)-1] == "start":
		err = startShim(bin, real)
	default:
		err = syscall.Exec(real, append([]string{real}, os.Args[1:]...), os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: shim:", err)
		return 1
	}
	return 0
}

// startShim starts the real shim and the process in its place, and prints the
// address of that one: a path, or an object that holds it (containerd 1.7 and later).
func startShim(bin, real string) error {
	start := exec.Command(real, os.Args[1:]...)
	start.Stdin, start.Stderr = os.Stdin, os.Stderr
	out, err := start.Output()
	if err != nil {
		return err
	}
	address := strings.TrimSpace(string(out))
	var object map[string]any
	if json.Unmarshal(out, &object) == nil {
		address, _ = object["address"].(string)
	}
	path := strings.TrimPrefix(address, "unix://")
	own := path + ".p"
	if _, err := os.Stat(own); err != nil { // the first container of the pod
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: own, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		if err != nil {
			return err
		}
		proxy := exec.Command(filepath.Join(bin, shimName), os.Args[1:len(os.Args)-1]...)
		proxy.Env = append(os.Environ(), shimProxyEnv+"="+path)
		proxy.ExtraFiles = []*os.File{f}
		proxy.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := proxy.Start(); err != nil {
			return err
		}
	}
	_, err = os.Stdout.Write(bytes.ReplaceAll(out, []byte(path), []byte(own)))
	return err
}

// proxyShim is the process in the shim's place.
func proxyShim(bin string) error {
	path := os.Getenv(shimProxyEnv)
	flag := filepath.Join(bin, os.Args[slices.Index(os.Args, "-id")+1])
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	go func() { // it ends with the real one
		for {
			if _, err := os.Stat(path); err != nil {
				os.Exit(0)
			}
			time.Sleep(time.Second)
		}
	}()
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("unix", path)
		if err != nil {
			closeQuietly(client)
			continue
		}
		go func() {
			_, _ = io.Copy(client, server)
			closeQuietly(client)
		}()
		go func() {
			_ = copyUnless(server, client.(*net.UnixConn), flag)
			closeQuietly(server)
		}()
	}
}

// copyUnless is io.Copy that does not read while a file is there.
func copyUnless(to io.Writer, from *net.UnixConn, flag string) error {
	f, err := from.File()
	if err != nil {
		return err
	}
	defer closeQuietly(f)
	buf := make([]byte, 64<<10)
	for {
		if _, err := os.Stat(flag); err == nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, 50)
		if n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		if _, err := os.Stat(flag); err == nil {
			continue
		}
		n, err = from.Read(buf)
		if err != nil {
			return err
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
}
