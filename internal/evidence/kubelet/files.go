package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// filesTimeout limits the reading of a set of files: their file system may hang.
	filesTimeout = time.Second
	// maxFile bounds one file, in bytes: far above any configuration and any bundle of
	// certificates.
	maxFile = 1 << 20
	// maxDropIns bounds the files of a drop-in directory, maxVisited the entries that are
	// looked at, maxDepth the directories inside one another.
	maxDropIns = 256
	maxVisited = 4096
	maxDepth   = 8
	// openAttempts is how often an open is made that a rename disturbs: openat2(2), EAGAIN.
	openAttempts = 3
)

var (
	errNotRegular = errors.New("not a regular file")
	errNotRoots   = errors.New("not root's, or writable by every user")
	errKernelFile = errors.New("a file of /proc or /sys")
	errTooLarge   = errors.New("too large")
)

// place is a tree of files as another process sees it. root is its root directory, "" for
// plegd's own.
type place struct {
	root string
	// hidden is true where the tree of the other process cannot be entered: root is plegd's
	// own then, and may hold other files.
	hidden bool
}

// namedFile is a file that another process names. err says why it has no content, and never
// holds a part of the file.
type namedFile struct {
	path    string
	content []byte
	err     error
}

// namedFiles reads files whose paths come from another process. Reads that hang are
// abandoned; meanwhile no others begin. The zero value is ready for use.
type namedFiles struct {
	slot bounded.Slot[[]namedFile]
}

// read reads a file and the *.conf below a directory; "" for none of each. There is one
// result for the file, first, and one for each of the others in the order of their paths.
func (n *namedFiles) read(ctx context.Context, tree place, file, directory string) []namedFile {
	files, err := n.slot.Do(ctx, filesTimeout, func(ctx context.Context) ([]namedFile, error) {
		var out []namedFile
		if file != "" {
			out = append(out, tree.read(file, maxFile))
		}
		if directory != "" {
			out = append(out, tree.dropIns(ctx, directory)...)
		}
		return out, nil
	})
	if err != nil {
		path := cmp.Or(file, directory)
		return []namedFile{{path: path, err: fmt.Errorf("%s: %w", path, err)}}
	}
	return files
}

// one reads a single file.
func (n *namedFiles) one(ctx context.Context, tree place, file string) ([]byte, error) {
	read := n.read(ctx, tree, file, "")[0]
	return read.content, read.err
}

// read reads a file of at most limit bytes.
func (tree place) read(path string, limit int) namedFile {
	content, err := tree.content(path, limit)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && tree.hidden:
		err = fmt.Errorf("%s: not in plegd's own mounts, and those of the kubelet cannot be read: %w", path, err)
	default:
		err = fmt.Errorf("%s: %w", path, err)
	}
	return namedFile{path: path, content: content, err: err}
}

func (tree place) content(path string, limit int) ([]byte, error) {
	f, err := tree.open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(b) > limit {
		return nil, fmt.Errorf("larger than %d bytes: %w", limit, errTooLarge)
	}
	if err != nil {
		return nil, cause(err)
	}
	return b, nil
}

// open opens a regular file of root's for reading. A path descriptor is checked before the
// file is opened: opening a FIFO blocks, and opening a device acts on it.
func (tree place) open(path string) (*os.File, error) {
	fd, err := tree.pathDescriptor(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // a path descriptor
	if err := checkNamed(fd); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	return f, nil
}

// pathDescriptor returns an O_PATH descriptor. Symbolic links lead within the root, and
// none of /proc's links to another process is followed.
func (tree place) pathDescriptor(path string) (int, error) {
	directory := unix.AT_FDCWD
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if tree.root != "" {
		fd, err := unix.Open(tree.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer func() { _ = unix.Close(fd) }() // a path descriptor
		directory = fd
		how.Resolve |= unix.RESOLVE_IN_ROOT
	}
	for attempt := 1; ; attempt++ {
		fd, err := unix.Openat2(directory, path, &how)
		switch {
		case attempt < openAttempts && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // before Linux 5.6, or filtered
			return unix.Open(tree.root+path, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
}

// checkNamed checks the file behind a path descriptor: what root alone can have written is
// read, and nothing that reading may block on or change.
func checkNamed(fd int) error {
	var file unix.Stat_t
	if err := unix.Fstat(fd, &file); err != nil {
		return err
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return err
	}
	switch {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
		return errNotRegular
	case system.Type == unix.PROC_SUPER_MAGIC, system.Type == unix.SYSFS_MAGIC:
		return errKernelFile
	case !proc.IsTrusted(file.Uid), file.Mode&unix.S_IWOTH != 0:
		return errNotRoots
	}
	return nil
}

// cause returns the error below a path error, whose path is one of plegd's own descriptors.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// dropIns reads the *.conf below a directory in the order of the kubelet's walk
// (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func (tree place) dropIns(ctx context.Context, directory string) []namedFile {
	w := walk{tree: tree}
	err := w.directory(ctx, directory, 0)
	if errors.Is(err, fs.ErrNotExist) && tree.hidden {
		err = fmt.Errorf("not in plegd's own mounts, and those of the kubelet cannot be read: %w", err)
	}
	if err != nil {
		w.files = append(w.files, namedFile{path: directory, err: fmt.Errorf("%s: %w", directory, err)})
	}
	return w.files
}

// walk reads a drop-in directory.
type walk struct {
	tree    place
	visited int
	files   []namedFile
}

func (w *walk) directory(ctx context.Context, path string, depth int) error {
	entries, err := w.list(path)
	if err != nil {
		return err
	}
	if depth >= maxDepth {
		return fmt.Errorf("more than %d directories deep: %w", maxDepth, errTooLarge)
	}
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case entry.IsDir():
			if err := w.directory(ctx, name, depth+1); err != nil {
				return err
			}
		case filepath.Ext(name) != ".conf":
		case len(w.files) == maxDropIns:
			return fmt.Errorf("more than %d files: %w", maxDropIns, errTooLarge)
		default:
			w.files = append(w.files, w.tree.read(name, maxFile))
		}
	}
	return nil
}

// list returns the entries of a directory by their names.
func (w *walk) list(path string) ([]fs.DirEntry, error) {
	fd, err := w.tree.pathDescriptor(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // a path descriptor
	d, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = d.Close() }() // only read from
	entries, err := d.ReadDir(maxVisited - w.visited + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cause(err)
	}
	w.visited += len(entries)
	if w.visited > maxVisited {
		return nil, fmt.Errorf("more than %d entries: %w", maxVisited, errTooLarge)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
