package incident

import (
	"io"
	"os"
)

// fsys is what the store asks of a file system; tests put a slow, a full or a
// telling one in its place.
type fsys interface {
	MkdirAll(dir string) error
	// Create opens a file for writing, empty; SyncDir makes the entries of a
	// directory last.
	Create(path string) (file, error)
	Rename(from, to string) error
	SyncDir(dir string) error
	Remove(path string) error
	// Names lists a directory, at most n entries of it.
	Names(dir string, n int) ([]string, error)
	// Open opens a regular file for reading and tells its size in bytes.
	Open(path string) (io.ReadCloser, int64, error)
}

type file interface {
	io.Writer
	Sync() error
	Close() error
}

type osFS struct{}

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osFS) Create(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return err
	}
	return d.Close()
}

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) Names(dir string, n int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // it was only read
	names, err := d.Readdirnames(n)
	if err == io.EOF { //nolint:errorlint // Readdirnames returns io.EOF itself for an empty directory
		err = nil
	}
	return names, err
}

func (osFS) Open(path string) (io.ReadCloser, int64, error) {
	// A pipe that somebody put there would hold up an open for ever.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, os.ErrInvalid
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}
