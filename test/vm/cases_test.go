//go:build e2e

package vm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

const containerd = "containerd.service"

// faults are those that need cgroup v2, systemd as the owner of the cgroups, or
// a disk to break.
var faults = []fault{
	{
		name: "CPUQuota=1% on the unit", want: "RuntimeThrottled", evidence: "throttled for",
		inject: func(b *bench) func() {
			return b.property("CPUQuota", containerd, "1%")
		},
	},
	{
		name: "CPUQuota=1% on the unit's slice", want: "RuntimeThrottled", evidence: "throttled for",
		inject: func(b *bench) func() {
			return b.property("CPUQuota", "runtime.slice", "1%")
		},
	},
	{
		name: "systemctl freeze", want: "RuntimeFrozen", evidence: "cgroup of pid .* is frozen: .*containerd.service",
		inject: func(b *bench) func() {
			b.do("systemctl freeze " + containerd)
			return b.undo("systemctl thaw " + containerd)
		},
	},
	{
		name: "cgroup.freeze of the unit's slice", want: "RuntimeFrozen", evidence: "is frozen: /runtime.slice",
		inject: func(b *bench) func() {
			b.do("echo 1 >/sys/fs/cgroup/runtime.slice/cgroup.freeze")
			return b.undo("echo 0 >/sys/fs/cgroup/runtime.slice/cgroup.freeze")
		},
	},
	{
		name: "MemoryHigh=4M", want: "RuntimeMemoryLimited", evidence: `of its throttling limit \(high\) 4\.0 MiB`,
		inject: func(b *bench) func() {
			return b.property("MemoryHigh", containerd, "4M")
		},
	},
	{
		// Without swap the kernel soon kills the runtime, and systemd starts it again.
		// What it needs for a relist does not fit into 10 MiB beside the kernel's part; in
		// 4 MiB it is killed all the same.
		name: "MemoryMax below the working set, with swap", want: "RuntimeMemoryLimited", evidence: `of its limit \(max\)`,
		// The node's own pressure is that of the last 10 s, and counts this cgroup's.
		onTheWay: []string{"NodePressure"},
		inject: func(b *bench) func() {
			b.do("dd if=/dev/zero of=/var/swap bs=1M count=256 status=none && chmod 600 /var/swap && mkswap -q /var/swap && swapon /var/swap")
			off := b.undo("swapoff /var/swap && rm /var/swap")
			stat := b.do("cat /sys/fs/cgroup/runtime.slice/containerd.service/memory.stat")
			lift := b.property("MemoryMax", containerd, strconv.FormatInt(statValue(b, stat, "kernel")+10<<20, 10))
			return func() {
				lift()
				off()
			}
		},
	},
	{
		name: "TasksMax reached", want: "KernelLimitReached", evidence: "tasks of the runtime's cgroup: ",
		inject: func(b *bench) func() {
			return b.property("TasksMax", containerd, b.machine.property(b.t, containerd, "TasksCurrent"))
		},
	},
	{
		name: "io.max on containerd's disk", want: "RuntimeStorageStall", evidence: "in D for",
		inject: func(b *bench) func() {
			undo := b.property("IOWriteBandwidthMax", containerd, "/dev/vdb 512")
			b.startPod()
			return undo
		},
	},
	{
		name: "fsfreeze of containerd's disk", want: "RuntimeStorageStall", evidence: "in D for",
		inject: func(b *bench) func() {
			b.do("fsfreeze --freeze /var/lib/containerd")
			b.startPod()
			return b.undo("fsfreeze --unfreeze /var/lib/containerd")
		},
	},
	{
		name: "LimitNOFILE=256 and 400 idle connections", want: "AcceptFDExhausted", evidence: "256",
		// AcceptStalled: until the process has been looked at, which takes seconds in
		// this machine.
		onTheWay: []string{"FDsRunningOut", "AcceptStalled"}, onTheWayBack: []string{"FDsRunningOut", "AcceptStalled"},
		prepare: func(b *bench) { b.dropIn("[Service]\nLimitNOFILE=256\n") },
		inject: func(b *bench) func() {
			b.do("systemd-run --quiet --unit=idle --collect perl -MIO::Socket::UNIX -e '" +
				`push @held, IO::Socket::UNIX->new(Peer => "/run/containerd/containerd.sock") for 1 .. 400; sleep` + "'")
			return b.undo("systemctl stop idle")
		},
	},
}

// property sets a property of a unit until the next boot; what it returns
// removes it.
func (b *bench) property(name, unit, value string) (undo func()) {
	b.t.Helper()
	b.do(fmt.Sprintf("systemctl set-property --runtime %s '%s=%s'", unit, name, value))
	return b.undo(fmt.Sprintf("systemctl set-property --runtime %s %s=", unit, name))
}

// dropIn restarts containerd with settings of the test's own, until its end.
func (b *bench) dropIn(text string) {
	b.t.Helper()
	const dir = "/run/systemd/system/" + containerd + ".d"
	// plegd as well: it counts the restarts of containerd that it has seen.
	restart := "systemctl daemon-reload && systemctl restart " + containerd + " && systemctl restart plegd"
	b.do(fmt.Sprintf("mkdir -p %s && printf '%%s' '%s' >%s/test.conf && %s", dir, text, dir, restart))
	b.t.Cleanup(func() { b.do("rm " + dir + "/test.conf && " + restart) })
}

// startPod asks for a pod and does not wait for it: the start hangs on the
// fault, and is over after it.
func (b *bench) startPod() {
	ctx, cancel := context.WithTimeout(context.Background(), namedWithin+wellWithin)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p, err := b.cri.TryRunPod(ctx); err == nil {
			p.Discard()
		}
	}()
	b.t.Cleanup(func() {
		<-done
		cancel()
	})
}

// statValue is a value of memory.stat.
func statValue(b *bench, stat, name string) int64 {
	b.t.Helper()
	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			return n
		}
	}
	b.t.Fatalf("no %s in:\n%s", name, stat)
	return 0
}
