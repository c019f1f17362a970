package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// EachSocket tells the socket inodes in a process's directory of descriptors, until
// over says after some hundred of them that it is enough. A process that may not be
// looked into, or is gone, has none.
func EachSocket(dir string, over func() bool, tell func(inode uint32)) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer func() { _ = d.Close() }() // only read from
	for {
		fds, err := d.Readdirnames(256)
		if err != nil {
			return
		}
		for _, fd := range fds {
			if link, err := os.Readlink(dir + "/" + fd); err == nil {
				if inode, ok := SocketInode(link); ok {
					tell(inode)
				}
			}
		}
		if over() {
			return
		}
	}
}

// SocketInode decodes socket:[123], what a socket's descriptor is a link to.
func SocketInode(link string) (uint32, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, "]")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}

// FDInode returns the inode of a /proc/PID/fdinfo/FD ("ino:", Linux 5.14), "" if
// it says none.
func FDInode(b []byte) string {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("ino:")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}

// MayReadFDs returns an error where the descriptors in dir cannot be read. Root
// without CAP_SYS_PTRACE may list those of a process with more capabilities, and
// still not read where they lead.
func MayReadFDs(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(1) // none where the process has ended
	for _, name := range names {
		if _, err := os.Readlink(dir + "/" + name); errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
