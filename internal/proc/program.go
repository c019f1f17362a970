package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// NotThere is the defect of a program whose file is gone.
const NotThere = "is not there"

// elfMachine is where the machine is in an ELF header, elfHead the length of the part that is read.
const (
	elfMachine = 18
	elfHead    = 20
)

// Program is a file as execve(2) takes it.
type Program struct {
	// Defect is why it cannot be started, "" where nothing shows that it cannot.
	Defect string
	// IsSkipped reports whether a search of PATH goes on behind it.
	IsSkipped bool
	// Changed is when the file was last written, renamed or made executable.
	Changed time.Time
}

// Program returns the program at a path, as a process sees it and for the architecture of that process. The error is why it
// is not known.
func (t *Table) Program(ctx context.Context, pid int, path string) (Program, error) {
	return t.files.Do(ctx, slowTimeout, func(context.Context) (Program, error) {
		return readProgram(t.ProcFS, pid, path)
	})
}

func readProgram(procfs string, pid int, path string) (Program, error) {
	root, err := open(Path(procfs, pid, "root"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Program{}, failed(path, err)
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := openIn(root, path, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Program{Defect: NotThere, IsSkipped: true}, nil
	}
	if err != nil {
		return Program{}, failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Program{}, failed(path, err)
	}
	p := Program{Changed: time.Unix(st.Ctim.Unix())}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		p.Defect = "is no regular file"
		p.IsSkipped = true
	case st.Mode&0o111 == 0:
		p.Defect = fmt.Sprintf("is not executable (mode %04o)", st.Mode&0o7777)
		p.IsSkipped = true
	case st.Size == 0:
		p.Defect = "is empty"
	default:
		p.Defect, err = headDefect(root, path, Path(procfs, pid, "exe"))
	}
	return p, err
}

// headDefect returns what the first bytes of a program show, beside those of a program that runs.
func headDefect(root int, path, running string) (string, error) {
	fd, err := openIn(root, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	head := make([]byte, elfHead)
	n, err := unix.Read(fd, head)
	if err != nil {
		return "", failed(path, err)
	}
	head = head[:n]
	like, _ := readRecord(running, make([]byte, elfHead)) // without it any architecture counts
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return "", nil
	case !isELF(head):
		return "begins with neither an ELF header nor #!", nil
	case isELF(like) && !bytes.Equal(head[elfMachine:], like[elfMachine:]):
		return "is built for another architecture", nil
	}
	return "", nil
}

func isELF(head []byte) bool { return len(head) == elfHead && bytes.HasPrefix(head, []byte("\x7fELF")) }

// openIn opens a path below a root directory, which no link leaves.
func openIn(root int, path string, flags uint64) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}
