package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity is what the kernel shows about who a process is, read at one time. A field that
// could not be read has its zero value, and its name is in Unread with the error.
type Identity struct {
	Process

	Args []string
	// UIDs are the real, effective, saved and file system user, as plegd's user namespace
	// numbers them.
	UIDs []int
	// PIDDepth is the number of pid namespaces that show the process; 1 for the node's own.
	PIDDepth int
	// Exe is the executable's path in the mount namespace of the process.
	Exe string
	// ExeOnNode reports whether that path is the same file in the mount namespace of pid 1.
	ExeOnNode bool
	// MountNS, UserNS and PIDNS name the namespaces: "mnt:[4026531841]".
	MountNS, UserNS, PIDNS string
	Cgroups                Cgroups

	Unread map[Proof]error
}

// Proof names a part of an identity.
type Proof string

// The parts of an identity.
const (
	ProofArgs    Proof = "arguments"
	ProofUser    Proof = "user"
	ProofExe     Proof = "executable"
	ProofMountNS Proof = "mount namespace"
	ProofUserNS  Proof = "user namespace"
	ProofPIDNS   Proof = "pid namespace"
	ProofCgroup  Proof = "cgroup"
)

// Identify reads the identity of a process. The error is that it has ended, or that not even
// its stat can be read; parts that cannot be read are in Unread.
func (t *Table) Identify(ctx context.Context, pid int) (Identity, error) {
	p, err := t.Alive(pid)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Process: p, Unread: map[Proof]error{}}
	id.Args = t.Args(p.ID())
	if id.Args == nil {
		id.Unread[ProofArgs] = &ReadError{Path: Path(t.ProcFS, pid, "cmdline"), Outcome: Late}
	}
	id.readStatus(t.ProcFS)
	b, err := Read(Path(t.ProcFS, pid, "cgroup"), maxProcFile)
	id.record(ProofCgroup, err)
	id.Cgroups = ParseCgroups(b)
	id.MountNS = id.link(ProofMountNS, t.ProcFS, "ns/mnt")
	id.UserNS = id.link(ProofUserNS, t.ProcFS, "ns/user")
	id.PIDNS = id.link(ProofPIDNS, t.ProcFS, "ns/pid")
	id.Exe = id.link(ProofExe, t.ProcFS, "exe")
	id.ExeOnNode = t.exeOnNode(ctx, id)
	reread, err := t.Alive(pid)
	if err == nil && (reread.ID() != p.ID() || reread.Comm != p.Comm) {
		err = ErrGone // the number, or the program, is another one by now
	}
	return id, err
}

// readStatus fills in what /proc/PID/status shows.
func (id *Identity) readStatus(procfs string) {
	b, err := Read(Path(procfs, id.PID, "status"), maxProcFile)
	id.PIDDepth = len(strings.Fields(value(b, "NSpid")))
	for _, field := range strings.Fields(value(b, "Uid")) {
		uid, invalid := strconv.Atoi(field)
		if invalid != nil {
			uid = -1
		}
		id.UIDs = append(id.UIDs, uid)
	}
	if err == nil && len(id.UIDs) == 0 {
		err = fmt.Errorf("%s: no Uid line", Path(procfs, id.PID, "status"))
	}
	id.record(ProofUser, err)
}

// link reads a link of the process; "" where it cannot be read.
func (id *Identity) link(part Proof, procfs, name string) string {
	target, err := Link(Path(procfs, id.PID, name))
	id.record(part, err)
	return target
}

func (id *Identity) record(part Proof, err error) {
	if err != nil {
		id.Unread[part] = err
	}
}

// IsRoot reports whether all user ids of the process are 0: a set-user-ID program that another
// user has started keeps that user's real id.
func (id *Identity) IsRoot() bool {
	for _, uid := range id.UIDs {
		if uid != 0 {
			return false
		}
	}
	return len(id.UIDs) > 0
}

// OwnerOf returns the owner of the directory of a process, by one system call: its user, or root
// where its memory is hidden; 0 if it has ended. It disproves and proves nothing.
func OwnerOf(procfs string, pid int) uint32 {
	var st unix.Stat_t
	_ = unix.Stat(Path(procfs, pid, ""), &st)
	return st.Uid
}

// exeOnNode compares the executable's file with that at its path below the root of pid 1. The
// file systems may hang, so it has a deadline; false then, and for any user but root.
func (t *Table) exeOnNode(ctx context.Context, id Identity) bool {
	if id.Exe == "" || !id.IsRoot() {
		return false
	}
	first, err := MountNamespace(t.ProcFS, 1)
	if err == nil && first == id.MountNS {
		return true
	}
	equal, err := t.stats.Do(ctx, slowTimeout, func(context.Context) (bool, error) {
		running, err := fileOf(Path(t.ProcFS, id.PID, "exe"))
		if err != nil {
			return false, err
		}
		node, err := fileOf(Path(t.ProcFS, 1, "root") + id.Exe)
		return err == nil && running == node, err
	})
	return err == nil && equal
}

// file is the identity of a file.
type file struct {
	major, minor uint32
	inode        uint64
}

// fileOf returns the file at a path. It asks no server of a remote file system.
func fileOf(path string) (file, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st); err != nil {
		return file{}, failed(path, err)
	}
	return file{major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino}, nil
}

// IsTrusted reports whether what belongs to a user may be believed: root's, and where plegd does
// not run as root, as in tests, what belongs to plegd's own user.
func IsTrusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
