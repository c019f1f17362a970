// Package statedir reads and writes the files of plegd's state directory. plegd is root, so it
// uses only a directory that nobody else can write to, follows no link in it, and opens only
// regular files.
package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plegd/plegd/internal/proc"
	"golang.org/x/sys/unix"
)

var (
	// ErrForeign is wrapped by the error about a directory that another user can write to.
	ErrForeign = errors.New("another user can write to it")
	// ErrIrregular is wrapped by the error about a link, a FIFO, a device or a directory.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLarge is wrapped by the error about a file that exceeds the limit.
	ErrTooLarge = errors.New("too large")
)

// Make opens a directory, which is created with mode 0700 if it is missing.
func Make(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return Open(path)
}

// Open opens a directory. The error wraps ErrForeign unless it belongs to root or to the user of
// this process, and neither other users nor another group can write to it. The path itself may
// be a link.
func Open(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := check(root, path); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// Below opens a directory of a directory, which is created with mode 0700 if it is missing and
// create is true.
func Below(parent *os.Root, name string, create bool) (*os.Root, error) {
	info, err := parent.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		err = parent.Mkdir(name, 0o700)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s: not a directory", filepath.Join(parent.Name(), name))
	}
	if err != nil {
		return nil, err
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if err := check(root, filepath.Join(parent.Name(), name)); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func check(root *os.Root, path string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it is only read
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	trusted := proc.IsTrusted(stat.Uid)
	byGroup := stat.Mode&0o020 != 0 && int(stat.Gid) != os.Getegid()
	byOthers := stat.Mode&0o002 != 0
	if !trusted || byGroup || byOthers {
		return fmt.Errorf("%s: %w: owner %d, group %d, mode %04o: want a directory of root with mode 0700",
			path, ErrForeign, stat.Uid, stat.Gid, stat.Mode&0o7777)
	}
	return nil
}

// Read reads a regular file of a directory, which has at most limit bytes.
func Read(root *os.Root, name string, limit int64) ([]byte, error) {
	path := filepath.Join(root.Name(), name)
	found, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !found.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(found, opened) {
		return nil, fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", path, ErrTooLarge, limit)
	}
	return b, err
}

// Draft is the name of a file that Write has not completed.
const Draft = "draft.tmp"

// Write replaces a file of a directory, by rename of Draft, and is called by one goroutine at a
// time. If durable, the content is on disk when it returns.
func Write(root *os.Root, name string, content []byte, durable bool) error {
	_ = root.Remove(Draft) // of a plegd that was killed, or planted: O_EXCL follows no link
	f, err := root.OpenFile(Draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && durable {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(Draft, name)
	}
	if err != nil {
		_ = root.Remove(Draft) // it takes space on a full disk
		return err
	}
	if !durable {
		return nil
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
