package stacks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// readLimit limits the time for one dump that is served.
	readLimit = 2 * time.Second
	// maxProcFile is the size of the files of /proc that are read.
	maxProcFile = 64 << 10
)

// ErrNone is returned where no dump is to be had.
var ErrNone = errors.New("no goroutine dump is to be had")

// Target is a runtime process.
type Target struct {
	PID int
	// Socket is the path over which it is called, "" where that is not known.
	Socket string
}

// Reader finds and reads the dumps of runtimes.
type Reader struct{ Table *proc.Table }

// Found is a dump and where it is from.
type Found struct {
	Program string    // containerd, crio or dockerd
	PID     int       // of the runtime
	Source  string    // a socket and its page, or a file
	Time    time.Time // when it was made
	Text    []byte
}

// Report analyses the dump. The error is ErrNotDump or ErrCounted.
func (f *Found) Report() (*Report, error) {
	dump, err := Parse(f.Text)
	if err != nil {
		return nil, err
	}
	return Analyse(dump), nil
}

// program describes a runtime that writes dumps.
type program struct {
	// page is where it serves a dump, on a socket for which serves is true.
	page   string
	serves func(t Target, socket string) bool
	// files are the paths, with patterns, to which it writes a dump after SIGUSR1.
	files func(r process) []string
}

// programs are the runtimes, by the name of their executable.
var programs = map[string]program{
	"crio": {
		page:   cri.PageGoroutinesCRIO,
		serves: func(t Target, socket string) bool { return socket == t.Socket },
		files:  func(process) []string { return []string{"/tmp/crio-goroutine-stacks-*.log"} },
	},
	"dockerd": {
		page:   cri.PageGoroutines,
		serves: func(_ Target, socket string) bool { return strings.HasSuffix(socket, "/docker.sock") },
		files: func(r process) []string {
			return []string{filepath.Join(r.argument("exec-root", "/var/run/docker"), "goroutine-stacks-*.log")}
		},
	},
	"containerd": {
		page:   cri.PageGoroutines,
		serves: func(_ Target, socket string) bool { return strings.Contains(filepath.Base(socket), "debug") },
		files: func(r process) []string {
			return []string{filepath.Join(r.tempDir(), fmt.Sprintf("containerd.%d.stacks.log", r.ownPID()))}
		},
	},
}

// process is one that has proved to be one of programs.
type process struct {
	program
	proc.Identity

	name   string
	procfs string
}

// identify proves that a process is a runtime.
func (r *Reader) identify(ctx context.Context, pid int) (process, error) {
	if pid <= 1 {
		return process{}, errors.New("the runtime's process is not known")
	}
	id, err := r.Table.Identify(ctx, pid)
	if err != nil {
		return process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	name, answer := family.Runtime(id)
	known, ok := programs[name]
	if !answer.Proven() || !ok {
		return process{}, fmt.Errorf("process %d is not containerd, crio or dockerd, whose dumps plegd knows: %s", pid, answer.Refused)
	}
	return process{program: known, Identity: id, name: name, procfs: r.Table.ProcFS}, nil
}

// argument returns the value of a flag of the process.
func (r process) argument(name, otherwise string) string {
	if value := proc.ArgValue(r.Args, name); filepath.IsAbs(value) {
		return value
	}
	return otherwise
}

// tempDir returns the directory for temporary files of the process.
func (r process) tempDir() string {
	environment, _ := proc.Read(proc.Path(r.procfs, r.PID, "environ"), maxProcFile) // the default, where it is not readable
	dir := proc.Variable(environment, "TMPDIR")
	if filepath.IsAbs(dir) {
		return dir
	}
	return "/tmp"
}

// ownPID returns the number of the process in its own pid namespace.
func (r process) ownPID() int {
	status, _ := proc.Read(proc.Path(r.procfs, r.PID, "status"), maxProcFile) // its number here, where it is not readable
	for line := range strings.Lines(string(status)) {
		numbers, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		fields := strings.Fields(numbers)
		if len(fields) == 0 {
			break
		}
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err == nil {
			return n
		}
	}
	return r.PID
}

// root is the root directory of the process.
func (r process) root() string { return proc.Path(r.procfs, r.PID, "root") }

// Read returns the newest dump of a runtime: one that it serves, else a file that a signal
// has left since it started. The error wraps ErrNone where there is neither.
func (r *Reader) Read(ctx context.Context, t Target) (*Found, error) {
	target, err := r.identify(ctx, t.PID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	found, err := r.served(ctx, t, target)
	if err == nil {
		return found, nil
	}
	started := proc.StartedAt(time.Now(), proc.Uptime(), target.Start)
	file, fileErr := target.newestFile(started)
	if fileErr == nil {
		return file, nil
	}
	return nil, fmt.Errorf("%w: %w; %w", ErrNone, err, fileErr)
}

// served reads the dump that the runtime serves.
func (r *Reader) served(ctx context.Context, t Target, target process) (*Found, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	sockets, err := r.sockets(ctx, t, target)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range sockets {
		text, err := cri.Get(ctx, path, target.page, MaxBytes+1)
		if err == nil {
			return &Found{Program: target.name, PID: t.PID, Source: path + target.page, Time: time.Now(), Text: text}, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("%s, pid %d, serves none", target.name, t.PID)
	}
	return nil, errors.Join(errs...)
}

// sockets returns the paths of the runtime's listening sockets that serve dumps, as this
// process sees them.
func (r *Reader) sockets(ctx context.Context, t Target, target process) ([]string, error) {
	if target.serves(t, t.Socket) && t.Socket != "" {
		return []string{t.Socket}, nil
	}
	listening := map[uint32]string{}
	err := proc.EachSocket(ctx, 1<<proc.Listening, func(s proc.Socket) {
		if filepath.IsAbs(s.Name) && target.serves(t, s.Name) {
			listening[s.Inode] = s.Name
		}
	})
	if err != nil {
		return nil, err
	}
	inodes, err := proc.SocketInodes(r.Table.ProcFS, t.PID)
	var out []string
	for inode := range inodes {
		if name := listening[inode]; name != "" {
			out = append(out, target.root()+name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), err
}

// Targets returns the runtime and the processes behind it that its calls pass through.
func Targets(f *facts.Facts) []Target {
	var out []Target
	for i, hop := range append([]facts.Hop{f.Evidence.Hop}, f.Evidence.Hops...) {
		if hop.Process.LivePID() == 0 {
			continue
		}
		t := Target{PID: hop.Process.LivePID()}
		if i == 0 {
			t.Socket = f.Endpoint.Path
		}
		out = append(out, t)
	}
	return out
}
