//go:build e2e

package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// goesOn checks that monitoring continues: relists do, the verdict is right, and
// the next fault is named.
func (p *plegd) goesOn(rt *fakeruntime.Runtime) {
	p.t.Helper()
	p.awaitReason("")
	p.relists(5)
	if err := rt.SetFailpoints("ListContainers=hang"); err != nil {
		p.t.Fatal(err)
	}
	p.awaitReason("RuntimeListStall")
	if err := rt.SetFailpoints(""); err != nil {
		p.t.Fatal(err)
	}
	p.awaitReason("")
}

// saidOnce checks that something stands in the log, and once.
func (p *plegd) saidOnce(what string) {
	p.t.Helper()
	if n := strings.Count(p.log(), what); n != 1 {
		p.t.Errorf("%q is said %d times in the log, want once", what, n)
	}
}

// awaitMetric waits for the value of a series.
func (p *plegd) awaitMetric(series, want string) {
	p.t.Helper()
	p.await(series+" "+want, func(*document) bool { return p.metric(series) == want })
}

// TestStateDirectory: the state directory cannot be used, in one way or another.
// That is said once and exported, and everything else continues.
func TestStateDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, dir string)
		flags   func(dir string) []string
		// writable tells that it can be written all the same.
		writable bool
		said     string
	}{
		"missing, and cannot be made": {
			flags: func(string) []string { return []string{"--state-dir=/proc/none/plegd"} },
			said:  "cannot save what was last seen",
		},
		"a file": {
			prepare: func(t *testing.T, dir string) { remake(t, dir, "", "") },
			said:    "cannot save what was last seen",
		},
		"full": {
			prepare: func(t *testing.T, dir string) { link(t, "/dev/full", dir+"/last-seen.json.tmp") },
			said:    "no space left on device",
		},
		"hangs": {
			// Nobody ever opens the other end.
			prepare: func(t *testing.T, dir string) { fifo(t, dir+"/last-seen.json.tmp") },
			said:    "no answer within 10s",
		},
		"read-only": {
			prepare: func(t *testing.T, dir string) { readOnly(t, dir) },
			said:    "cannot save what was last seen",
		},
		"a corrupt file": {prepare: func(t *testing.T, dir string) { remake(t, dir, "last-seen.json", "{\"schema\":1,\x00\xff") }, writable: true, said: "starting without what was last seen"},
		"a foreign file": {prepare: func(t *testing.T, dir string) { remake(t, dir, "last-seen.json", `[1,2,"three"]`) }, writable: true, said: "starting without what was last seen"},
		"a file of the future": {prepare: func(t *testing.T, dir string) {
			remake(t, dir, "last-seen.json", `{"schema":1,"boot_id":"a-boot","written_monotonic_ns":9223372036854775807,"last_seen_monotonic_ns":9223372036854775807}`)
		}, writable: true, said: "starting without what was last seen"},
		"a file of 1 TB": {
			prepare: func(t *testing.T, dir string) {
				remake(t, dir, "last-seen.json", "")
				if err := os.Truncate(dir+"/last-seen.json", 1<<40); err != nil {
					t.Skip(err)
				}
			},
			writable: true, said: "starting without what was last seen",
		},
		"a FIFO in the file's place": {prepare: func(t *testing.T, dir string) { fifo(t, dir+"/last-seen.json") }, writable: true, said: "starting without what was last seen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			var o options
			base := lab.Dir(t)
			dir := filepath.Join(base, "state")
			write(t, filepath.Join(dir, "keep"), "")
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			o.flags = []string{"--state-dir=" + dir}
			if tt.flags != nil {
				o.flags = tt.flags(base)
			}
			if name == "read-only" && os.Geteuid() == 0 {
				// Root writes where nobody may: as somebody else, whom the socket lets in.
				o.prepare = asNobody(t, socket, base)
			}
			p := start(t, socket, o)
			up := "0"
			if tt.writable {
				up = "1"
			}
			p.goesOn(rt)
			p.awaitMetric(`pleg_evidence_up{source="state"}`, up)
			p.await("it is said", func(*document) bool { return strings.Contains(p.log(), tt.said) })
			time.Sleep(6 * time.Second) // until it has been tried again
			p.saidOnce(tt.said)
		})
	}
}

// remake makes a directory that holds one file; without a name, a file in its
// place.
func remake(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, name), text)
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path)
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o555); err != nil { //nolint:gosec // read-only is the subject
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
}

// asNobody makes plegd run as somebody who is not root.
func asNobody(t *testing.T, socket, dir string) func(*exec.Cmd) {
	t.Helper()
	open(t, filepath.Dir(socket), 0o777)
	open(t, dir, 0o777)
	open(t, socket, 0o777)
	program, err := os.ReadFile(lab.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "plegd")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(c *exec.Cmd) {
		c.Path = copied
		for _, arg := range c.Args {
			if path, ok := strings.CutPrefix(arg, "--control-socket="); ok {
				open(t, filepath.Dir(path), 0o777)
			}
			if path, ok := strings.CutPrefix(arg, "--path.procfs="); ok {
				_ = filepath.WalkDir(path, func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o755) })
			}
		}
		c.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
}

// open changes the mode of a file, and lets everybody into the directory above.
func open(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if above := filepath.Dir(path); above != "/tmp" {
		_ = os.Chmod(above, 0o777) //nolint:gosec // nobody else is in it
	}
}

// TestProc: the files of /proc hang, cannot be read, or hold nonsense. The
// sources that need them fail, each for itself.
func TestProc(t *testing.T) {
	files := []string{"net/unix", "loadavg", "locks", "pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/file-nr", "sys/kernel/pid_max", "sys/kernel/threads-max", "self/stat"}
	for name, put := range map[string]func(t *testing.T, path string){
		"hang":            fifo,
		"are directories": func(t *testing.T, path string) { write(t, path+"/x", "") },
		"are garbage":     func(t *testing.T, path string) { write(t, path, strings.Repeat("\x00\xff9999999999999999999 ", 1000)) },
		"are endless":     func(t *testing.T, path string) { write(t, path, ""); _ = os.Remove(path); link(t, "/dev/zero", path) },
		"are empty":       func(t *testing.T, path string) { write(t, path, "") },
	} {
		t.Run("they "+name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			proc := filepath.Join(lab.Dir(t), "proc")
			pid := strconv.Itoa(os.Getpid()) // the runtime's
			for _, f := range append(files, "sys/kernel/random/boot_id", pid+"/stat", pid+"/limits", pid+"/cgroup", pid+"/cmdline", "1/stat", "1/comm") {
				put(t, filepath.Join(proc, f))
			}
			p := start(t, socket, options{flags: []string{"--path.procfs=" + proc}})
			p.goesOn(rt)
			p.awaitMetric(`pleg_evidence_up{source="node"}`, "0")
			if n := threads(t, p.Pid()); n > 64 {
				t.Errorf("%d threads", n)
			}
		})
	}
}

func threads(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// TestDescriptorsUsedUp: plegd itself has no descriptor left. What it holds goes
// on, and what it could not open is opened when it can be.
func TestDescriptorsUsedUp(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{})
	p.awaitReason("")
	pid := p.Pid()
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 1024}, &old); err != nil {
		t.Fatal(err)
	}
	// The connections of this test are held, and so are answered all along.
	d := p.relists(20)
	if d.State != "healthy" || d.Relist.Failures != 0 {
		t.Errorf("it says %v of a runtime that is well", d)
	}
	if err := rt.SetFailpoints("ListContainers=hang"); err != nil {
		t.Fatal(err)
	}
	p.awaitReason("RuntimeListStall")
	if err := rt.SetFailpoints(""); err != nil {
		t.Fatal(err)
	}
	p.await("healthy, or what a fresh dial has to say", func(d *document) bool { return d.Relist.Failures == 0 && d.State != "unhealthy" })
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1024}, nil); err != nil {
		t.Fatal(err)
	}
	p.goesOn(rt)
}

// TestFileSizeLimit: files may not be written at all, by a limit that the kernel
// enforces with a signal.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{})
	p.awaitReason("")
	if err := unix.Prlimit(p.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
	p.awaitMetric(`pleg_evidence_up{source="state"}`, "0")
	p.goesOn(rt)
	if err := unix.Prlimit(p.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
	p.awaitMetric(`pleg_evidence_up{source="state"}`, "1")
}

// TestWebPortTaken: somebody else has the port, and lets go of it later.
func TestWebPortTaken(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	p := start(t, socket, options{flags: []string{"--web.listen-address=" + address}})
	p.goesOn(rt)
	p.saidOnce("the web address cannot be served")
	_ = l.Close()
	p.await("the port is served", func(*document) bool {
		resp, err := p.web.Get("http://" + address + "/-/healthy")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestClients: thousands of connections that say nothing, and hundreds that ask
// and do not read the answer. Other clients are still answered.
func TestClients(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{})
	p.awaitReason("")
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	little := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}
	dialer := net.Dialer{Timeout: patience, Control: little}
	dial := func(network, address, say string) {
		c, err := dialer.DialContext(t.Context(), network, address)
		if err != nil {
			return // refused or full: that is the server's right
		}
		conns = append(conns, c)
		_, _ = io.WriteString(c, say)
	}
	const scrape = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 2000 {
		dial("tcp", p.Address, "")
	}
	for range 100 {
		dial("tcp", p.Address, strings.Repeat(scrape, 20))
		dial("tcp", p.Address, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
		dial("unix", p.ControlSocket, "")
	}
	for range 64 { // one after the other, as plegd answers, and with more than the kernel keeps for them
		dial("tcp", p.Address, strings.Repeat(scrape, 200))
		_, _ = conns[len(conns)-1].Read(make([]byte, 1))
	}
	// A further scrape waits for a place, and gets its metrics once the stuck ones
	// have run into plegd's timeouts.
	fresh := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	p.await("three scrapes beside them", func(*document) bool {
		for range 3 {
			code, _, err := p.get(fresh, "/metrics")
			if err != nil || code != http.StatusOK {
				return false
			}
		}
		return true
	})
	p.goesOn(rt)
}

// TestLogReader: nobody reads the log, and then its reader is gone.
func TestLogReader(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 50)
	var r, w *os.File
	p := start(t, socket, options{prepare: func(c *exec.Cmd) {
		var err error
		if r, w, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		c.Stderr, c.Stdout = w, w
	}})
	_ = w.Close()
	defer r.Close()
	// Each restart is a line: far more than a pipe holds, and than waits.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		rt.Churn(0.5)
	}
	p.relists(5)
	p.goesOn(rt)
	found := make(chan bool, 1)
	go func() {
		lines, dropped := bufio.NewScanner(r), false
		for lines.Scan() && !dropped {
			dropped = strings.Contains(lines.Text(), "log lines were dropped")
		}
		found <- dropped
	}()
	select {
	case ok := <-found:
		if !ok {
			t.Error("the log ended without a word on the lines that were dropped")
		}
	case <-time.After(patience):
		t.Error("the log does not say how many lines were dropped")
	}
	_ = r.Close()
	rt.Churn(1) // lines for nobody
	p.relists(5)
	p.goesOn(rt)
}

// TestLittleMemory: the garbage collector's limit is far below the need.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 100)
	p := start(t, socket, options{env: []string{"GOMEMLIMIT=6MiB"}})
	p.awaitReason("")
	p.goesOn(rt)
}

// TestStopped: plegd is stopped for a while, as by a debugger or with a virtual
// machine, and continues as if nothing had been.
func TestStopped(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{flags: []string{"--relist-threshold=5s", "--relist-period=1s"}})
	p.awaitReason("")
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second)
	if err := syscall.Kill(p.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.awaitReason("")
	if n := strings.Count(p.log(), `"state":"unhealthy"`) + strings.Count(p.log(), `"state":"degraded"`); n > 0 {
		t.Errorf("the verdict changed for the worse %d times:\n%s", n, p.log())
	}
	p.goesOn(rt)
}
