package kernellog

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// TestParse has records of several kernels, and texts that a process chooses to look like one.
func TestParse(t *testing.T) {
	type message = facts.KernelMessage
	for _, tt := range []struct {
		kernel, record string
		want           message // zero for none
		comm           string
	}{
		{"6.18 limit", "6,1423,57504231701,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice,task_memcg=/system.slice/containerd.service,task=containerd,pid=812,uid=0",
			message{Kind: facts.LogLimit, Cgroup: "/system.slice"}, ""},
		{"5.15 the node's memory", "6,9,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user,task=,oom_memcg=/a,pid=812,uid=0",
			message{Kind: facts.LogLimit}, ""},
		{"6.18 cgroup", "3,1424,57504231726,-,caller=T20003;Memory cgroup out of memory: Killed process 20003 (python3) total-vm:221368kB, anon-rss:16128kB, file-rss:6688kB, shmem-rss:0kB, UID:0 pgtables:100kB oom_score_adj:0",
			message{Kind: facts.LogKill, PID: 20003, Text: "Memory cgroup out of memory: Killed process 20003 (python3)"}, "python3"},
		{"5.4 node", "3,5,1,-;Out of memory: Killed process 812 (containerd) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
			message{Kind: facts.LogKill, PID: 812, Text: "Out of memory: Killed process 812 (containerd)"}, "containerd"},
		{"4.18", "3,5,1,-;Killed process 812 (containerd) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
			message{Kind: facts.LogKill, PID: 812, Text: "Killed process 812 (containerd)"}, "containerd"},
		{"3.10", "3,5,1,-;Killed process 812 (dockerd), UID 0, total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
			message{Kind: facts.LogKill, PID: 812, Text: "Killed process 812 (dockerd)"}, "dockerd"},
		{"a comm like another kill", "3,5,1,-;Out of memory: Killed process 77 (process 1 (x)) total-vm:1kB, anon-rss:1kB",
			message{Kind: facts.LogKill, PID: 77, Text: "Out of memory: Killed process 77 (process 1 (x))"}, "process 1 (x)"},

		{"5.10 task", "3,7,1,-;INFO: task jbd2/vdt-8:390 blocked for more than 120 seconds.", message{Kind: facts.LogHung, PID: 390, Text: "INFO: task jbd2/vdt-8:390 blocked for more than 120 seconds"}, ""},
		{"newer task", "3,7,1,-;INFO: task containerd:812 blocked in I/O wait for more than 122 seconds.", message{Kind: facts.LogHung, PID: 812, Text: "INFO: task containerd:812 blocked in I/O wait for more than 122 seconds"}, ""},
		{"a comm with a pid", `3,7,1,-;INFO: task x:1 blocked\x0afo:77 blocked for more than 120 seconds.`, message{Kind: facts.LogHung, PID: 77, Text: `INFO: task x:1 blocked\x0afo:77 blocked for more than 120 seconds`}, ""},
		{"a comm and a file like a hung task", "6,7,1,-;INFO: task a[20]: segfault at 0 ip 0 sp 0 error 4 in f:812 blocked for more than 120 seconds.[400000+1000]", message{}, ""},

		{"5.15 disk", "3,8,1,-;blk_update_request: I/O error, dev sda, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0", message{Kind: facts.LogDisk, Device: "sda", Text: "I/O error, dev sda"}, ""},
		{"4.14 disk", "3,8,1,-;print_req_error: I/O error, dev vda, sector 2048", message{Kind: facts.LogDisk, Device: "vda", Text: "I/O error, dev vda"}, ""},
		{"6.1 medium\n SUBSYSTEM=block", "3,8,1,-;critical medium error, dev nvme0n1, sector 6 op 0x0:(READ)\n SUBSYSTEM=block\n DEVICE=b259:0", message{Kind: facts.LogDisk, Device: "nvme0n1", Text: "critical medium error, dev nvme0n1"}, ""},
		{"buffer", "3,8,1,-;Buffer I/O error on dev dm-0, logical block 12, lost async page write", message{Kind: facts.LogDisk, Device: "dm-0", Text: "Buffer I/O error on dev dm-0"}, ""},
		{"ext4", "2,8,1,-;EXT4-fs error (device sda1): ext4_journal_check_start:83: comm I/O error: Detected aborted journal", message{Kind: facts.LogDisk, Device: "sda1", Text: "EXT4-fs error (device sda1)"}, ""},
		{"ext4 remounted", "2,8,1,-;EXT4-fs (sda1): Remounting filesystem read-only", message{Kind: facts.LogDisk, Device: "sda1", Text: "EXT4-fs (sda1): Remounting filesystem read-only"}, ""},
		{"ext4 journal", "3,8,1,-;Aborting journal on device dm-1-8.", message{Kind: facts.LogDisk, Device: "dm-1", Text: "Aborting journal on device dm-1-8"}, ""},
		{"xfs", "1,8,1,-;XFS (dm-2): Filesystem has been shut down due to log error (0x2).", message{Kind: facts.LogDisk, Device: "dm-2", Text: "XFS (dm-2): Filesystem has been shut down"}, ""},
		{"xfs of 4.18", "1,8,1,-;XFS (sdb1): Log I/O Error Detected.  Shutting down filesystem", message{Kind: facts.LogDisk, Device: "sdb1", Text: "XFS (sdb1): Log I/O Error"}, ""},
		{"btrfs", "6,8,1,-;BTRFS info (device sda2 state E): forced readonly", message{Kind: facts.LogDisk, Device: "sda2", Text: "BTRFS info (device sda2 state E): forced readonly"}, ""},
		{"a comm and a file like XFS", "6,8,1,-;XFS (sda1): Log[20]: segfault at 0 ip 0 sp 0 error 4 in I/O Error[400000+1000]", message{}, ""},

		{"mounted", "6,8,1,-;EXT4-fs (loop0): mounted filesystem 9f34 r/w with ordered data mode. Quota mode: none.", message{}, ""},
		{"of a process", "12,8,1,-;Out of memory: Killed process 812 (containerd) total-vm:1kB, anon-rss:1kB", message{}, ""},
		{"of a daemon", "30,8,1,-;I/O error, dev sda, sector 2048", message{}, ""},
		{"no record", "Out of memory: Killed process 812 (containerd) total-vm:1kB", message{}, ""},
	} {
		got, ok := Parse([]byte(tt.record))
		if ok != (tt.want.Kind != "") || ok && (got.KernelMessage != tt.want || got.Comm != tt.comm) {
			t.Errorf("%s: %t, %+v, want %+v", tt.kernel, ok, got, tt.want)
		}
	}
	m, _ := Parse([]byte("3,5,57504231726,-;Killed process 812 (a) total-vm:1kB"))
	check.Equal(t, m.Up, 57504231726*time.Microsecond, "the time since boot")
}

// TestNext: overwritten records are reported, then reading continues; an interrupted read is made again.
func TestNext(t *testing.T) {
	answers := []error{unix.EPIPE, unix.EINTR, nil, unix.EAGAIN, unix.EIO}
	l := &Log{record: make([]byte, 10), read: func(_ int, p []byte) (int, error) {
		err := answers[0]
		answers = answers[1:]
		if err != nil {
			return -1, err
		}
		return copy(p, "record"), nil
	}}
	for _, want := range []error{ErrOverrun, nil, io.EOF, unix.EIO} {
		record, err := l.Next()
		if !errors.Is(err, want) || want == nil && string(record) != "record" {
			t.Errorf("%q, %v, want %v", record, err, want)
		}
	}
}
