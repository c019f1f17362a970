//go:build e2e

package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// TestNothingIsLinkedThatStarts: neither plegd nor anything that it imports can
// start a process: what would do it is not in the binary.
func TestNothingIsLinkedThatStarts(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "github.com/plegd/plegd/cmd/plegd")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	deps, err := list.Output()
	lab.Must(t, err)
	for pkg := range strings.Lines(string(deps)) {
		switch strings.TrimSpace(pkg) {
		case "os/exec", "plugin", "net/http/pprof", "C", "runtime/cgo":
			t.Errorf("plegd imports %s", pkg)
		}
	}
	// Of its own, since a released one has no symbols.
	path := filepath.Join(t.TempDir(), "plegd")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/plegd/plegd/cmd/plegd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.Command("go", "tool", "nm", path).Output()
	lab.Must(t, err)
	if !strings.Contains(string(symbols), " T runtime.main") {
		t.Fatal("the binary has no symbols: this test tests nothing")
	}
	starts := regexp.MustCompile(`(?m) (os\.StartProcess|os\.startProcess|os\.\(\*Process\)\.Signal|os\.\(\*Process\)\.Kill|syscall\.StartProcess|syscall\.ForkExec|syscall\.forkExec|syscall\.forkAndExecInChild1?|syscall\.Kill|syscall\.PtraceAttach|golang\.org/x/sys/unix\.(Exec|Kill|Tgkill|Ptrace\w*))(\.abi0)?$`)
	for _, s := range starts.FindAllStringSubmatch(string(symbols), -1) {
		t.Errorf("%s is in the binary", s[1])
	}
}

// TestNothingIsStarted traces the system calls of a plegd that lives through
// faults and questions: no process is started, none is signalled, no memory of another
// process is read (/proc/PID/mem), and it listens where it was told to.
func TestNothingIsStarted(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED: no strace here (Debian: strace)")
	}
	if out, err := exec.Command(strace, "-e", "trace=none", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: strace may not trace here: %v %s", err, out)
	}
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	trace := filepath.Join(lab.Dir(t), "trace")
	p := start(t, socket, prepared(func(c *exec.Cmd) {
		// A child of strace's would not be the process that the rest looks at:
		// with -D it is strace that is the child.
		c.Args = append([]string{strace, "-D", "-f", "-qq", "-o", trace, "-e", "signal=none",
			"-e", "trace=execve,execveat,fork,vfork,clone,clone3,kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal,ptrace,process_vm_readv,process_vm_writev,mount,setns,unshare,bind,open,openat,openat2"}, append([]string{c.Path}, c.Args[1:]...)...)
		c.Path = strace
	}, "--path.procfs=/proc", "--path.sysfs=/sys"))
	p.await("a relist", func(s lab.Status) bool { return s.LastSeen != nil })
	lab.Must(t, rt.SetFailpoints("ListContainers=hang;socket=freeze"))
	p.await("the fault", func(s lab.Status) bool { return s.State == "degraded" })
	run(t, "status", "--control-socket="+p.ControlSocket)
	for _, path := range []string{"/", "/metrics", "/api/v1/status", "/healthz", "/api/v1/incidents"} {
		if _, _, err := p.Get(path); err != nil {
			t.Error(err)
		}
	}
	lab.Must(t, rt.SetFailpoints(""))
	time.Sleep(6 * time.Second) // a save, and every source of evidence
	p.stop()
	b, err := os.ReadFile(trace)
	lab.Must(t, err)
	own, execs, threads, opens := strconv.Itoa(p.Pid()), 0, 0, 0
	memory := regexp.MustCompile(`"/proc/[^"]*/mem"`)
	for line := range strings.Lines(string(b)) {
		_, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		call = strings.TrimSpace(call)
		switch {
		case strings.HasPrefix(call, fmt.Sprintf("execve(%q", lab.Binary(t))): // at its start once more, for the timer slack
			execs++
		case strings.HasPrefix(call, "clone") && strings.Contains(call, "CLONE_THREAD"),
			strings.HasPrefix(call, "<... clone"):
			threads++
		case strings.HasPrefix(call, "tgkill("+own+","): // Go's scheduler, to its own threads
		case strings.HasPrefix(call, "<... tgkill"):
		case strings.HasPrefix(call, "open") && !memory.MatchString(call):
			opens++
		case strings.HasPrefix(call, "bind("):
			if !strings.Contains(call, p.ControlSocket) && !strings.Contains(call, "AF_INET") && !strings.Contains(call, "AF_NETLINK") {
				t.Errorf("it bound %s", call)
			}
		case strings.HasPrefix(call, "+++"), strings.HasPrefix(call, "---"), strings.HasPrefix(call, "<... "):
		default:
			t.Errorf("plegd did %s", call)
		}
	}
	if execs < 1 || execs > 2 || threads == 0 || opens == 0 {
		t.Errorf("the trace has %d execve, want its own; %d threads and %d files", execs, threads, opens)
	}
}
