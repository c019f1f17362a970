package exporter

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
)

// Node describes the machine, for MetricNodeInfo. Unknown fields are empty.
type Node struct {
	Kernel, OSImage, CgroupVersion string
}

// ReadNode reads the kernel's release, the os-release file (os-release(5)) and the
// cgroup version. In a container with the node's PID namespace the file of process
// 1 is the node's; the container's own file is not.
func ReadNode(procfs, sysfs string) Node {
	n := Node{CgroupVersion: "1"}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		n.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	root := filepath.Join(procfs, "1/root")
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		b, err := proc.ReadFile(root + file)
		if errors.Is(err, proc.Denied) {
			b, err = proc.ReadFile(file) // not root: a process of the node itself
		}
		if err == nil {
			n.OSImage = osImage(b)
			break
		}
	}
	if _, err := os.Stat(filepath.Join(sysfs, "fs/cgroup/cgroup.controllers")); err == nil {
		n.CgroupVersion = "2"
	}
	return n
}

// osImage returns PRETTY_NAME of an os-release file, as the kubelet reports it in
// the node's status.osImage.
func osImage(file []byte) string {
	for s := bufio.NewScanner(bytes.NewReader(file)); s.Scan(); {
		value, ok := strings.CutPrefix(s.Text(), "PRETTY_NAME=")
		if !ok {
			continue
		}
		if unquoted, err := strconv.Unquote(value); err == nil {
			return unquoted
		}
		return strings.Trim(value, `'"`)
	}
	return ""
}
