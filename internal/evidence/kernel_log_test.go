package evidence

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kernellog"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestKernelLog: only kills of known processes, by pid, comm and start, are evidence, also where the process becomes
// known after its end; a hung thread has its process; what repeats is counted.
func TestKernelLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	must.Do(t, err)
	defer writer.Close()
	const up = 1000 * time.Second
	started := time.Now().Add(-500 * time.Second)
	runtime := subject{pid: 812, started: started, comm: "containerd", kind: facts.LogKill}
	present := []subject{runtime, {pid: 900, started: started, kind: facts.LogKubeletKill}}
	procfs := t.TempDir()
	evidencetest.WriteTree(t, procfs, map[string]string{"813/status": "Tgid:\t812\nPid:\t813\n"})
	k := &kernelLog{
		path:        path,
		procfs:      procfs,
		hasNodePIDs: true,
		present:     func() []subject { return present },
		up:          func() time.Duration { return up },
		unread:      proc.Unread{},
	}
	log := func(ago int, text string) *facts.KernelLog {
		t.Helper()
		_, err := fmt.Fprintf(writer, "3,1,%d,-;%s\n", (up - time.Duration(ago)*time.Second).Microseconds(), text)
		must.Do(t, err)
		got, err := k.gather(t.Context())
		must.Do(t, err)
		return got
	}
	const kill = "Memory cgroup out of memory: Killed process %d (%s) total-vm:1kB, anon-rss:1kB"
	log(600, fmt.Sprintf(kill, 812, "containerd")) // before it was started
	log(60, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubelet,task_memcg=/kubelet,task=kubelet,pid=900,uid=0")
	log(60, fmt.Sprintf(kill, 900, "kubelet"))
	log(50, fmt.Sprintf(kill, 812, "python3")) // another process has had the pid
	log(40, fmt.Sprintf(kill, 77, "containerd"))
	log(30, "INFO: task containerd:813 blocked for more than 120 seconds.")
	log(20, "INFO: task gone:814 blocked for more than 120 seconds.")
	log(10, "I/O error, dev sda, sector 1 op 0x0:(READ)")
	log(9, "I/O error, dev sda, sector 2 op 0x0:(READ)")
	got := log(8, fmt.Sprintf(kill, 820, "containerd"))
	known := slices.Clone(got.Messages)
	runtime.pid = 820
	runtime.started = time.Now().Add(-20 * time.Second)
	present = []subject{runtime}
	got = log(1, "usb 1-1: Product: keyboard")
	for i := range got.Messages {
		got.Messages[i].At = time.Time{}
	}
	want := []facts.KernelMessage{
		{Kind: facts.LogKubeletKill, PID: 900, Count: 1, Cgroup: "/kubelet", Text: "Memory cgroup out of memory: Killed process 900 (kubelet)"},
		{Kind: facts.LogHung, PID: 812, TID: 813, Count: 1, Text: "INFO: task containerd:813 blocked for more than 120 seconds"},
		{Kind: facts.LogDisk, Device: "sda", Count: 2, Text: "I/O error, dev sda"},
		{Kind: facts.LogKill, PID: 820, Count: 1, Text: "Memory cgroup out of memory: Killed process 820 (containerd)"},
	}
	if len(known) != 3 || len(k.subjects) != 3 {
		t.Errorf("before the process is known: %+v; subjects: %+v", known, k.subjects)
	}
	check.Same(t, got.Messages, want, "messages")
}

// TestKernelLogUnread: a log that is not there is none; pids of another namespace prove nothing.
func TestKernelLogUnread(t *testing.T) {
	k := &kernelLog{path: filepath.Join(t.TempDir(), "kmsg"), present: func() []subject { return nil }, unread: proc.Unread{}}
	if _, err := k.gather(t.Context()); err != ErrNoData || len(k.unread) != 0 { //nolint:errorlint // the error itself
		t.Errorf("not there: %v, %v", err, k.unread)
	}
	k.subjects = []subject{{pid: 812, kind: facts.LogKill}}
	k.unproven = append(k.unproven, kernellog.Message{KernelMessage: facts.KernelMessage{Kind: facts.LogKill, PID: 812, At: time.Now()}})
	k.prove()
	if len(k.messages) != 0 {
		t.Errorf("in another pid namespace: %+v", k.messages)
	}
}
