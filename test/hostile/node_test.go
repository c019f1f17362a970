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
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
)

// TestStateDirectory makes the state directory unusable in one way or another: that is
// logged once and exported, and everything else continues. Broken files in it are
// TestBrokenState's in internal/daemon, a read-only one TestUnitPrivileges'.
func TestStateDirectory(t *testing.T) {
	t.Parallel()
	const cannot = "cannot save the state"
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, dir string)
		said  string
	}{
		"missing, and cannot be made": {nil, cannot},
		"a file":                      {func(t *testing.T, dir string) { lab.Must(t, os.Remove(dir)); write(t, dir, "") }, cannot},
		"full":                        {fill, cannot},
		"with a directory in the way": {func(t *testing.T, dir string) { write(t, dir+"/draft.tmp/x", "") }, cannot},
		"writable by others":          {func(t *testing.T, dir string) { lab.Must(t, os.Chmod(dir, 0o777)) }, cannot},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, files)
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			dir := filepath.Join(lab.Dir(t), "state")
			lab.Must(t, os.Mkdir(dir, 0o755))
			if tt.spoil != nil {
				tt.spoil(t, dir)
			} else {
				dir = "/proc/none/plegd"
			}
			p := start(t, socket, lab.PlegdOptions{Flags: []string{"--state-dir=" + dir}})
			p.worksOn(rt)
			p.awaitMetric(`pleg_evidence_up{source="state"}`, "0")
			p.await("it is logged", func(lab.Status) bool { return strings.Contains(p.log(), tt.said) })
			time.Sleep(6 * time.Second) // until it has been tried again
			check.Equal(t, strings.Count(p.log(), tt.said), 1, "lines of the log with %q", tt.said)
		})
	}
}

// fill mounts a file system without space at a path.
func fill(t *testing.T, dir string) {
	t.Helper()
	lab.RequireRoot(t)
	lab.Must(t, unix.Mount("plegd", dir, "tmpfs", 0, "size=16k,mode=755"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	lab.Must(t, os.WriteFile(dir+"/other", make([]byte, 16<<10), 0o600))
}

// fifo puts a FIFO at a path.
func fifo(t *testing.T, path string) {
	t.Helper()
	lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path)
	lab.Must(t, unix.Mkfifo(path, 0o666))
}

// TestProc makes files of /proc hang, unreadable, or nonsense. The sources that need them
// fail, each for itself.
func TestProc(t *testing.T) {
	t.Parallel()
	pid := strconv.Itoa(os.Getpid()) // the runtime's
	files := []string{
		"net/unix", "loadavg", "locks", "pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/file-nr", "sys/kernel/pid_max",
		"sys/kernel/threads-max", "self/stat", "sys/kernel/random/boot_id", pid + "/stat", pid + "/limits", pid + "/cgroup", pid + "/cmdline", "1/stat", "1/comm",
	}
	for name, put := range map[string]func(t *testing.T, path string){
		"hang":            fifo,
		"are directories": func(t *testing.T, path string) { write(t, path+"/x", "") },
		"are garbage":     func(t *testing.T, path string) { write(t, path, strings.Repeat("\x00\xff9999999999999999999 ", 1000)) },
		"are endless": func(t *testing.T, path string) {
			lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			lab.Must(t, os.Symlink("/dev/zero", path))
		},
		"are empty": func(t *testing.T, path string) { write(t, path, "") },
	} {
		t.Run("they "+name, func(t *testing.T) {
			countAttack(t, brokeNode)
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			proc := filepath.Join(lab.Dir(t), "proc")
			for _, f := range files {
				put(t, filepath.Join(proc, f))
			}
			p := start(t, socket, lab.PlegdOptions{Flags: []string{"--path.procfs=" + proc}})
			p.worksOn(rt)
			p.awaitMetric(`pleg_evidence_up{source="node"}`, "0")
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid()))
			if lab.Must(t, err); len(tasks) > 64 {
				t.Errorf("%d threads", len(tasks))
			}
		})
	}
}

// limit sets one of plegd's resource limits.
func (p *plegd) limit(resource int, cur, max uint64) {
	p.t.Helper()
	lab.Must(p.t, unix.Prlimit(p.Pid(), resource, &unix.Rlimit{Cur: cur, Max: max}, nil))
}

// TestDescriptorsUsedUp leaves plegd without a descriptor. Its open connections continue,
// and the others are opened as soon as they can be.
func TestDescriptorsUsedUp(t *testing.T) {
	countAttack(t, brokeNode)
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, lab.PlegdOptions{})
	p.awaitReason()
	p.limit(unix.RLIMIT_NOFILE, 3, 1024)
	// The connections of this test are held, and so are answered all along.
	if s := p.relists(20); s.State != "healthy" || s.Relist.Failures != 0 {
		t.Errorf("a runtime that is well is %s", describe(s))
	}
	lab.Must(t, rt.SetFailpoints("ListContainers=hang"))
	p.awaitReason("RuntimeListStall")
	lab.Must(t, rt.SetFailpoints(""))
	p.await("healthy, or the failure of a fresh dial", func(s lab.Status) bool { return s.Relist.Failures == 0 && s.State != "unhealthy" })
	p.limit(unix.RLIMIT_NOFILE, 1024, 1024)
	p.worksOn(rt)
}

// TestPlegd restricts plegd in other ways.
func TestPlegd(t *testing.T) {
	for name, tt := range map[string]struct {
		options lab.PlegdOptions
		during  func(t *testing.T, p *plegd, rt *fakeruntime.Runtime)
	}{
		"the garbage collector's limit is far below the need": {lab.PlegdOptions{Env: []string{"GOMEMLIMIT=6MiB"}}, nil},
		// The kernel enforces this limit with a signal.
		"files may not be written": {lab.PlegdOptions{}, func(_ *testing.T, p *plegd, rt *fakeruntime.Runtime) {
			p.limit(unix.RLIMIT_FSIZE, 0, unix.RLIM_INFINITY)
			p.awaitMetric(`pleg_evidence_up{source="state"}`, "0")
			p.worksOn(rt)
			p.limit(unix.RLIMIT_FSIZE, unix.RLIM_INFINITY, unix.RLIM_INFINITY)
			p.awaitMetric(`pleg_evidence_up{source="state"}`, "1")
		}},
		// As by a debugger or with a virtual machine.
		"stopped": {lab.PlegdOptions{Flags: []string{"--relist-threshold=5s", "--relist-period=1s"}}, func(t *testing.T, p *plegd, _ *fakeruntime.Runtime) {
			lab.Freeze(t, p.Pid())
			time.Sleep(7 * time.Second)
			lab.Thaw(t, p.Pid())
			p.awaitReason()
			if log := p.log(); strings.Contains(log, `"state":"unhealthy"`) || strings.Contains(log, `"state":"degraded"`) {
				t.Errorf("the verdict changed for the worse:\n%s", log)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, brokeNode)
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			p := start(t, socket, tt.options)
			p.awaitReason()
			if tt.during != nil {
				tt.during(t, p, rt)
			}
			p.worksOn(rt)
		})
	}
}

// TestClients opens hundreds of connections that send nothing, or ask and do not read the
// answer: several times as many as plegd serves at once, each for seconds. Other clients
// are still answered.
func TestClients(t *testing.T) {
	countAttack(t, clients)
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, lab.PlegdOptions{})
	p.awaitReason()
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	dialer := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}}
	dial := func(network, address, say string) {
		c, err := dialer.DialContext(t.Context(), network, address)
		if err != nil {
			return // refused or full: that is the server's right
		}
		conns = append(conns, c)
		_, _ = io.WriteString(c, say)
	}
	const scrape = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 250 {
		dial("tcp", p.Address, "")
	}
	for range 25 {
		dial("tcp", p.Address, strings.Repeat(scrape, 20))
		dial("tcp", p.Address, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
		dial("unix", p.ControlSocket, "")
	}
	for range 64 { // one after the other, as plegd answers, and with more than the kernel keeps for them
		dial("tcp", p.Address, strings.Repeat(scrape, 200))
		_, _ = conns[len(conns)-1].Read(make([]byte, 1))
	}
	// A further scrape waits for a place, and gets its metrics once the stuck ones have
	// run into plegd's timeouts.
	fresh := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	p.await("three scrapes beside them", func(lab.Status) bool {
		for range 3 {
			if code, _, err := lab.Get(fresh, "http://"+p.Address+"/metrics"); err != nil || code != http.StatusOK {
				return false
			}
		}
		return true
	})
	p.worksOn(rt)
}

// TestLogReader: the log's reader reads nothing, and then is gone.
func TestLogReader(t *testing.T) {
	countAttack(t, brokeNode)
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 50)
	r, w, err := os.Pipe()
	lab.Must(t, err)
	defer r.Close()
	p := start(t, socket, prepared(func(c *exec.Cmd) { c.Stderr, c.Stdout = w, w }))
	_ = w.Close()
	// Each restart is a line: far more than a pipe and plegd's queue hold.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		rt.Churn(0.5)
	}
	p.relists(5)
	p.worksOn(rt)
	found := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if strings.Contains(lines.Text(), "log lines were dropped") {
				found <- true
				return
			}
		}
		found <- false
	}()
	select {
	case ok := <-found:
		if !ok {
			t.Error("the log ended without the number of dropped lines")
		}
	case <-time.After(patience):
		t.Error("the log does not hold the number of dropped lines")
	}
	_ = r.Close()
	rt.Churn(1) // lines without a reader
	p.relists(5)
	p.worksOn(rt)
}

// TestOtherPIDNamespace: in a container that does not share the node's process ids the
// kernel reports no pid behind the socket. With the node's /proc mounted elsewhere the
// process is found by its socket all the same.
func TestOtherPIDNamespace(t *testing.T) {
	lab.RequireRoot(t)
	_, socket := serve(t, fakeruntime.Options{}, 5)
	proc := lab.Dir(t) + "/host-proc"
	lab.Must(t, os.Symlink("/proc", proc))
	p := start(t, socket, prepared(func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID }, "--path.procfs="+proc))
	p.awaitMetric(`pleg_evidence_up{source="process"}`, "1")
	p.awaitMetric(`pleg_evidence_up{source="queue"}`, "1")
	p.awaitMetric(`pleg_verdict{state="healthy"}`, "1")
	outside, err := os.Readlink("/proc/self/ns/pid")
	lab.Must(t, err)
	if ns, err := os.Readlink("/proc/" + strconv.Itoa(p.Pid()) + "/ns/pid"); err != nil || ns == outside {
		t.Errorf("plegd's pid namespace is %s, %v: the test's is %s", ns, err, outside)
	}
}
