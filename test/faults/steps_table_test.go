//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// steps are the commands of one reason, pasted while a fault of the tables stands.
type steps struct {
	reason, fault string
	commands      []pasted
}

// stepsOf are the commands that need no systemd; serviceSteps are the others.
var stepsOf = []steps{
	{health.RuntimeFrozen, "SIGSTOP", []pasted{
		{holds: "grep -e State", want: "T (stopped)"},
		{holds: "kill -CONT", repairs: true},
	}},
	{health.RuntimeFrozen, "cgroup frozen", []pasted{{holds: "echo THAWED", repairs: true}}},
	{health.RuntimeStorageStall, "FUSE server does not answer", []pasted{
		{holds: "/stack", want: "fuse"},
		{holds: "/proc/pressure/io", want: "some avg10="},
		{holds: "grep -e nfs -e fuse", want: "fuse", inside: true},
	}},
	{health.RuntimeStorageLocked, "CRI-O waits for a storage lock while it runs", []pasted{
		{holds: "ps -o pid", wantOf: func(*bench) string { return fmt.Sprint(os.Getpid()) }},
		{holds: "cat /proc/locks", want: "-> "},
	}},
	{health.RuntimeStarved, "CPU shares of 2 beside hogs", []pasted{{holds: "ps -eLo cls", want: " sh"}}},
	{health.AcceptFDExhausted, "dockerd without a descriptor, prlimit ends it", []pasted{
		{holds: "prlimit --nofile", repairs: true, values: hardLimit},
	}},
	{health.RuntimeFrozen, "dockerd stopped", []pasted{{holds: "kill -CONT", repairs: true}}},
	{health.RuntimeFrozen, "dockerd's containerd stopped", []pasted{{holds: "kill -CONT", repairs: true}}},
	{health.AcceptFDExhausted, "400 idle connections, 256 fds", []pasted{
		{holds: "ls -l /proc/", want: "socket"},
		{holds: "ss -xp", wantOf: func(*bench) string { return fmt.Sprintf("pid=%d,", os.Getpid()) }},
	}},
	{health.AcceptFDExhausted, "prlimit to 8 fds", []pasted{{holds: "prlimit --nofile", repairs: true, values: hardLimit}}},
	{health.RuntimeSocketTakenOver, "symbolic link to another runtime's socket", []pasted{
		{holds: "ps -o pid,lstart", wantOf: func(b *bench) string { return fmt.Sprint(b.second.Pid()) }},
		{holds: "ls -li", wantOf: func(b *bench) string { return "-> " + b.second.Socket }},
	}},
	{health.RuntimeSocketTakenOver, "bind mount of another runtime's socket", []pasted{
		{holds: "findmnt -T", wantOf: func(b *bench) string { return b.socket }},
	}},
	{health.RuntimeSocketPermissionDenied, "chmod 000", []pasted{{holds: "stat ", want: "(0000/s"}}},
	{health.AcceptStalled, "prlimit to 8 fds, accept queue filled", []pasted{
		{holds: "ss -xlp", want: "4097"},
		{holds: "ss -xp"},
		{holds: "| wc -l"},
		{holds: "grep files", want: "8 "},
	}},
	{health.AcceptStalled, "nobody accepts", []pasted{{holds: "ss -xlp", want: "plegd"}}},
	{health.CRIVersionUnsupported, "a web server takes the socket", []pasted{
		{holds: "containerd --version", want: "containerd"},
		{holds: "curl ", want: "hello"},
	}},
	{health.RuntimeStarting, "start held up by 3 stopped shims", []pasted{{holds: "grep '[s]him'", want: "T"}}},
	{health.RuntimeUnresponsive, "every call hangs", []pasted{
		{holds: "ps -L", want: "plegd"},
		{holds: "/proc/pressure/{cpu,io,memory}", want: "full avg10="},
	}},
	{health.RuntimeListStall, "runc update hangs", []pasted{
		{holds: "plegd status", want: "RuntimeHelperStuck", status: -1},
		{holds: " pods", want: "Ready"},
		{holds: " ps", want: "DeadlineExceeded", status: 1},
		{holds: "inspect CONTAINER", want: "DeadlineExceeded", status: 1, values: victimID},
		{holds: "kill -USR1"}, // it lives: the next command of the row asks it
		{holds: " pods", want: "Ready"},
	}},
	{health.RuntimeHelperStuck, "runc update hangs", []pasted{{holds: "ps -o pid", want: "update"}}},
	{health.PodStartsFailing, "runc update hangs", []pasted{{holds: "ps -eo pid,ppid", want: "runc"}}},
	{health.ListResponseTooLarge, "list above the client's limit", []pasted{
		{holds: "ps -a -q | wc -l", want: "ResourceExhausted", status: 1},
		{holds: "pods -q | wc -l", want: "6"},
		{holds: "--pod $p", status: -1, repairs: true},
	}},
	{health.RuntimeNotReady, "Status hangs", []pasted{{holds: " info", want: "DeadlineExceeded", status: 1}}},
	{health.NodeStatusStalled, "Version hangs", []pasted{{holds: " version", want: "DeadlineExceeded", status: 1}}},
	{health.NetworkNotReady, "no CNI configuration", []pasted{{holds: "lastCNILoadStatus", want: "cni"}}},
	{health.RuntimeStorageFull, "root full, ext4", []pasted{
		{holds: "df -h", wantOf: func(b *bench) string { return "100% " + b.disk.Path() }, inside: true},
		{holds: "df -i", wantOf: func(b *bench) string { return b.disk.Path() }, inside: true},
		{holds: "findmnt", want: "errors=remount-ro", inside: true},
		{holds: "du -xh", wantOf: func(b *bench) string { return b.disk.Path() }, inside: true},
	}},
	{health.RuntimeStorageFull, "root out of inodes, ext4", []pasted{{holds: "rmi --prune"}}},
	{health.ShimStuck, "shim stopped", []pasted{
		{holds: "ps -o pid", wantOf: func(b *bench) string { return fmt.Sprint(b.Shim(b.pods[0])) }},
		{holds: "kill -CONT", repairs: true},
	}},
	{health.PodInspectionStall, "inspections hang, pods change", []pasted{
		{holds: "plegd status", want: "STUCK PODS", status: -1},
		{holds: "ps -eo pid", want: "shim"},
	}},
	{health.PodInspectionStall, "inspections fail, pods change", []pasted{
		{holds: "plegd status", want: "no such file", status: -1},
	}},
	{health.FDsRunningOut, "descriptors nearly used up", []pasted{
		{holds: "ls -l /proc/", want: "socket"},
	}},
	{health.TooManyContainers, "a list of 14 MB", []pasted{
		{holds: "ps -a -q --state", want: "0"},
		{holds: "pods -q --state", want: "0"},
	}},
	{health.Unknown, "ListContainers fails", []pasted{{holds: "plegd status", want: "no such bucket", status: -1}}},
}

// stepFaults are faults that only the commands need.
var stepFaults = []fault{
	{
		name: "runc update hangs", on: []string{"containerd"}, want: health.RuntimeHelperStuck, goal: 5 * time.Second,
		options: lab.ContainerdOptions{RuncHangsOn: "update"},
		prepare: func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
		inject: func(b *bench) func() {
			b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
			done := inBackground(func(ctx context.Context) { _ = b.victim.UpdateResources(ctx) })
			return func() {
				b.must(os.Remove(b.RuncFlag()))
				<-done
			}
		},
	},
	{
		name: "descriptors nearly used up", want: health.FDsRunningOut, goal: 5 * time.Second, options: lab.ContainerdOptions{OpenFiles: 256},
		inject: func(b *bench) func() {
			open := b.connect(150)
			return func() { closeAll(open) }
		},
	},
	{
		name: "a list of 14 MB", want: health.TooManyContainers, goal: 5 * time.Second,
		inject: func(b *bench) func() {
			lab.Two(145, func(int) { b.pods[0].CreateHeavyContainer(100_000) })
			b.injected = time.Now()
			return func() {}
		},
	},
	callFault("nobody accepts", health.AcceptStalled, 6*time.Second, "socket=noaccept"),
	callFault("Version hangs", health.NodeStatusStalled, 20*time.Second, "Version=hang"),
	{
		name: "inspections fail, pods change", want: health.PodInspectionStall, goal: 10 * time.Second,
		simulate: []string{"--pods=20", "--churn=0.2"},
		inject: func(b *bench) func() {
			b.failpoints("PodSandboxStatus=error(Internal: no such file)")
			return func() { b.failpoints("") }
		},
	},
}

// hardLimit takes the machine's hard limit for the one that is printed: root in a
// container may not raise it.
func hardLimit(b *bench) *strings.Replacer {
	var l unix.Rlimit
	b.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	return strings.NewReplacer("65536:65536", fmt.Sprintf("%[1]d:%[1]d", min(65536, l.Max)))
}

// victimID fills in the container that the fault is made on.
func victimID(b *bench) *strings.Replacer { return strings.NewReplacer("CONTAINER", b.victim.ID) }

// notTried is a command that neither table tries, and why.
type notTried struct{ reason, holds, why string }

// The reasons why a command is not tried.
const (
	noCommand  = "no command: the name of a file, an option or a metric"
	elsewhere  = "the same command is tried of another reason"
	noKubelet  = "no kubelet is a service here"
	noDocker   = "dockerd is no service here"
	kernelLog  = "the kernel's messages are the machine's, not the test's"
	cgroupV2   = "cgroup v2, and the machines of these tests have v1"
	noImages   = "plegd simulate stands in, and crictl wants an image service"
	notDebian  = "not among the programs that the tests install"
	notHarmful = "it would change the machine, or the load of all other tests"
)

// untried are the commands that are not tried. Reasons that nothing here makes on a
// real runtime have all of theirs in it.
var untried = []notTried{
	{"", "kubectl", "the API server's and the kubelet's own: test/cluster has them"},
	{"", "kubelet", noKubelet},
	{"", "localhost:10248", noKubelet},
	{"", "free -m", noKubelet},
	{"", "docker", noDocker},
	{"", "systemctl status containerd", noDocker},
	{"", "live-restore", noCommand},
	{"", "cgroup.freeze", cgroupV2},
	{"", "/cpu.max", cgroupV2},
	{"", "systemctl thaw", cgroupV2},
	{"", "journalctl -k", kernelLog},
	{"", "dmesg", kernelLog},
	{"", "memory.", noCommand},
	{"", "MemoryHigh=", cgroupV2},
	{"", "percpu_rwsem_wait", noCommand},
	{"", "fsfreeze -u", "the end of the fault is the same call"},
	{"", "CPUWeight", "systemctl show and set-property are tried of RuntimeThrottled"},
	{"", "--runtime-endpoint", noCommand},
	{"", "ausearch", notDebian},
	{"", "crio --version", "CRI-O is not installed where containerd is broken"},
	{"", "disabled_plugins", noCommand},
	{health.CRIVersionUnsupported, "cri", noCommand},
	{health.RuntimeListStall, "kill -CONT", "tried of ShimStuck"},
	{"", "kill -USR1", "plegd simulate stands in, which writes none; tried of RuntimeListStall"},
	{"", "systemctl restart UNIT", "tried of RuntimeSocketUnlinked; make e2e-advice restarts the runtime in each fault for which that may help"},
	{"", "systemctl status UNIT", elsewhere},
	{"", "journalctl -u UNIT", elsewhere},
	{"", "plegd status", elsewhere},
	{"", "{cpu,io,memory}", elsewhere},
	{"", "/proc/pressure/", elsewhere},
	{"", "ps -a -q", elsewhere},
	{health.RuntimeStorageFull, "crictl -r unix://SOCKET rm", "there is no exited container"},
	{"", "--vacuum-size", notHarmful},
	{health.FDsRunningOut, "prlimit", "tried of AcceptFDExhausted"},
	{health.PodInspectionStall, "inspect CONTAINER", noImages},
	{health.PodInspectionStall, "crictl ", noImages},
	{health.NetworkNotReady, "ls -l /etc/cni/net.d", "the tests' runtime has its configuration elsewhere"},
	{health.NetworkNotReady, "-e calico", "no network's agent runs here"},
	{"", "top", "it asks for a terminal"},
	{health.RelistSlow, "cpu.stat", "beside cpu.cfs_quota_us, which is tried of RuntimeThrottled"},
	{health.KernelLimitReached, "", notHarmful},
	{health.NodePressure, "", notHarmful},
	{health.RuntimeThreadStuck, "", noCommand},
}
