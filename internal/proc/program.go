package proc

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// NotThere is the defect of a program whose file is gone.
const NotThere = "is not there"

const (
	// elfMachine is where the machine is in an ELF header, elfHead the length of the part that is compared.
	elfMachine = 18
	elfHead    = 20
	// programHead is how much of a program execve(2) looks at for #! and an interpreter (BINPRM_BUF_SIZE).
	programHead = 256
	// maxProgram bounds the part of an ELF program that is looked at, in bytes: the list of its sections is at its end.
	maxProgram = 256 << 20
	// maxInterpreters is how many interpreters execve(2) follows (exec_binprm).
	maxInterpreters = 5
)

// Program is a file as execve(2) takes it.
type Program struct {
	// Defect is why it cannot be started, "" where nothing shows that it cannot.
	Defect string
	// IsSkipped reports whether a search of PATH goes on behind it.
	IsSkipped bool
	// Changed is when the file was last written, renamed or made executable.
	Changed time.Time
	// Device and Inode are those of a regular file, as stat(2) has them; 0 for another one, which many may have open for writing.
	Device, Inode uint64
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
	like, _ := readRecord(Path(procfs, pid, "exe"), make([]byte, elfHead)) // without it any architecture counts
	return programIn(root, path, like, maxInterpreters)
}

// programIn returns the program at a path below a root directory, which is like another one; interpreters is how many of
// its interpreters are read.
func programIn(root int, path string, like []byte, interpreters int) (Program, error) {
	fd, err := openIn(root, path, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Program{Defect: NotThere, IsSkipped: true}, nil
	}
	if err != nil {
		return Program{}, failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	var mounted unix.Statfs_t
	if err := cmp.Or(unix.Fstat(fd, &st), unix.Fstatfs(fd, &mounted)); err != nil {
		return Program{}, failed(path, err)
	}
	p := Program{Changed: time.Unix(st.Ctim.Unix())}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		p.Defect = "is no regular file"
		p.IsSkipped = true
		return p, nil
	}
	p.Device = st.Dev
	p.Inode = st.Ino
	switch {
	case st.Mode&0o111 == 0:
		p.Defect = fmt.Sprintf("is not executable (mode %04o)", st.Mode&0o7777)
		p.IsSkipped = true
	case mounted.Flags&unix.ST_NOEXEC != 0:
		p.Defect = "is on a file system that is mounted noexec"
		p.IsSkipped = true
	case st.Size == 0:
		p.Defect = "is empty"
	default:
		p.Defect, err = contentDefect(root, path, like, interpreters)
	}
	return p, err
}

// contentDefect returns what the first bytes of a program show, beside those of a program that runs, and its interpreter.
func contentDefect(root int, path string, like []byte, interpreters int) (string, error) {
	fd, err := openIn(root, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", failed(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	head := make([]byte, programHead)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", failed(path, err)
	}
	head = head[:n]
	isScript := bytes.HasPrefix(head, []byte("#!"))
	switch {
	case isScript:
	case !isELF(head):
		return "begins with neither an ELF header nor #!", nil
	case isELF(like) && !bytes.Equal(head[elfMachine:elfHead], like[elfMachine:elfHead]):
		return "is built for another architecture", nil
	}
	interpreter := elfInterpreter(f)
	left := 0 // that of an ELF program is the last one
	if isScript {
		interpreter = scriptInterpreter(head)
		left = interpreters - 1
	}
	if interpreter == "" || interpreters == 0 {
		return "", nil
	}
	p, err := programIn(root, interpreter, like, left)
	if err != nil || p.Defect == "" {
		return "", err
	}
	return fmt.Sprintf("cannot be started, for its interpreter %s %s", interpreter, p.Defect), nil
}

// scriptInterpreter returns the absolute path behind #!, "" where there is none.
func scriptInterpreter(head []byte) string {
	line, _, isWhole := strings.Cut(string(head[2:]), "\n")
	fields := strings.Fields(line)
	isPath := len(fields) > 0 && strings.HasPrefix(fields[0], "/")
	if !isPath || !isWhole && len(fields) == 1 && len(head) == programHead { // its path may be cut
		return ""
	}
	return fields[0]
}

// elfInterpreter returns the absolute path of an ELF program's interpreter, "" where it has none or that is not known.
func elfInterpreter(f io.ReaderAt) string {
	program, err := elf.NewFile(io.NewSectionReader(f, 0, maxProgram))
	if err != nil {
		return ""
	}
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP && part.Filesz <= unix.PathMax {
			b, _ := io.ReadAll(part.Open())
			path, _, isWhole := strings.Cut(string(b), "\x00")
			if isWhole && strings.HasPrefix(path, "/") {
				return path
			}
		}
	}
	return ""
}

// Writer returns the process with the smallest pid that has one of some programs open for writing, so that execve(2) fails
// with ETXTBSY, and the path of that program; 0 for none. programs are by paths; the error is as Holders'.
func (t *Table) Writer(ctx context.Context, programs map[string]Program) (pid int, path string, err error) {
	_, err = Holders(ctx, t.ProcFS, func(holder, fd int, leads string) bool {
		if pid == 0 && IsFile(leads) {
			path = t.writtenBy(holder, fd, leads, programs)
		}
		if pid == 0 && path != "" {
			pid = holder
		}
		return pid != 0
	})
	return pid, path, err
}

// writtenBy returns the path of the program that a descriptor is open to write to, "" for none. The file system of a file
// of another number, or of another name, may be what hangs: it is not asked.
func (t *Table) writtenBy(pid, fd int, leads string, programs map[string]Program) string {
	info := ReadFDInfo(t.ProcFS, pid, fd)
	if info.ReadOnly() {
		return ""
	}
	for file, p := range programs {
		mayBe := info.Inode == strconv.FormatUint(p.Inode, 10) || info.Inode == "" && filepath.Base(leads) == filepath.Base(file)
		if !mayBe || p.Inode == 0 {
			continue
		}
		st, err := StatFD(t.ProcFS, pid, fd)
		if err == nil && st.Dev == p.Device && st.Ino == p.Inode {
			return file
		}
	}
	return ""
}

func isELF(head []byte) bool { return len(head) >= elfHead && bytes.HasPrefix(head, []byte("\x7fELF")) }

// openIn opens a path below a root directory, which no link leaves.
func openIn(root int, path string, flags uint64) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}
