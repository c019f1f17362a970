package kernellog

import (
	"bytes"
	"regexp"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// userFacility is the least priority of a record that is not the kernel's: a process that writes to
// /dev/kmsg gets facility 1 at least (Documentation/ABI/testing/dev-kmsg).
const userFacility = 8

// Message is what a record reports. Its time is set by the reader.
type Message struct {
	facts.KernelMessage

	Up   time.Duration // since boot, without suspended time
	Comm string        // of the process that was killed
}

// limitLine precedes the kill of a process. Kind is LogLimit, Cgroup the one whose limit was met, "" for the node's memory.
var limitLine = regexp.MustCompile(`^oom-kill:constraint=(?:CONSTRAINT_MEMCG,.*?,oom_memcg=([^,]*),task_memcg=|CONSTRAINT_)`)

// killLine is of Linux 5 and 6, or of 3.10 and 4. The comm, which its process sets, follows the pid.
var killLine = regexp.MustCompile(`^((?:Memory cgroup out of memory: |Out of memory(?: \([a-z_]+\))?: )?Killed process (\d+) \((.*)\)),? (?:UID \d+, )?total-vm:`)

// hungLine has the comm before the thread's id. A comm has at most 15 bytes, each escaped where it is not printable: too
// few for the text behind the id. The name of a file in the report of a crash comes too late in the line.
var hungLine = regexp.MustCompile(`^(INFO: task (?:[^\\]|\\x[0-9a-f]{2}){0,15}:(\d+) blocked (?:in I/O wait )?for more than \d+ seconds)\.`)

// diskLines are errors of a block device, whose name is the second group, or of a file system on it.
var diskLines = []*regexp.Regexp{
	regexp.MustCompile(`^(?:blk_update_request: |print_req_error: |end_request: )?((?:I/O|timeout|protection|recoverable transport|critical [a-z ]+) error, dev (\S+)), sector \d`),
	regexp.MustCompile(`^(Buffer I/O error on dev(?:ice)? (\S+)), logical block \d`),
	regexp.MustCompile(`^(EXT4-fs error \(device (\S+?)\)): `),
	regexp.MustCompile(`^(EXT4-fs \((\S+?)\): (?:Remounting filesystem read-only|shut down requested))`),
	regexp.MustCompile(`^(Aborting journal on device (\S+?)(?:-\d+)?)\.`),
	regexp.MustCompile(`^(XFS \((\S+?)\): (?:[Ll]og I/O [Ee]rror|[Mm]etadata I/O [Ee]rror|Corruption of |Filesystem has been shut down|User initiated shutdown))`),
	regexp.MustCompile(`^(BTRFS:? (?:error|info|critical) \(device ([^\s:)]+)(?::? state \w+)?\)(?:: forced readonly| in [^:]*:\d+: errno=-\d+))`),
}

// Parse returns the message of a record; ok is false for a record that is not the kernel's, and for any other text.
// The kernel escapes unprintable bytes.
func Parse(record []byte) (m Message, ok bool) {
	line, _, _ := bytes.Cut(record, []byte("\n")) // the rest are properties of the device
	head, text, _ := bytes.Cut(line, []byte(";"))
	fields := bytes.SplitN(head, []byte(","), 4)
	if len(fields) < 4 {
		return Message{}, false
	}
	priority, err := strconv.Atoi(string(fields[0]))
	if err != nil || priority >= userFacility {
		return Message{}, false
	}
	up, err := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil {
		return Message{}, false
	}
	m, ok = parseText(text)
	m.Up = time.Duration(up) * time.Microsecond
	return m, ok
}

func parseText(text []byte) (m Message, ok bool) {
	if found := limitLine.FindSubmatch(text); found != nil {
		m.Kind = facts.LogLimit
		m.Cgroup = string(found[1])
		return m, true
	}
	if found := killLine.FindSubmatch(text); found != nil {
		m.Kind = facts.LogKill
		m.Comm = string(found[3])
		return m.matched(found)
	}
	if found := hungLine.FindSubmatch(text); found != nil {
		m.Kind = facts.LogHung
		return m.matched(found)
	}
	for _, line := range diskLines {
		if found := line.FindSubmatch(text); found != nil {
			m.Kind = facts.LogDisk
			m.Text = string(found[1])
			m.Device = string(found[2])
			return m, true
		}
	}
	return Message{}, false
}

// matched returns the message with the text and the pid of a match.
func (m Message) matched(found [][]byte) (Message, bool) {
	pid, err := strconv.Atoi(string(found[2]))
	m.PID = pid
	m.Text = string(found[1])
	return m, err == nil
}
