package stacks

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxEntries bounds the entries of a directory that are looked at.
const maxEntries = 1 << 14

// newestFile returns the newest dump that the runtime has written since a time.
func (r process) newestFile(oldest time.Time) (*Found, error) {
	found, err := r.dumpFiles()
	found = slices.DeleteFunc(found, func(f *Found) bool { return f.Time.Before(oldest) })
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b *Found) int { return a.Time.Compare(b.Time) }), nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("it has left no file %s since %s", strings.Join(r.files(r), ", "), oldest.UTC().Format(time.RFC3339))
}

// dumpFiles returns the dumps that are there, and the last error of those that cannot be read.
func (r process) dumpFiles() (out []*Found, failed error) {
	for _, pattern := range r.files(r) {
		for _, name := range r.glob(pattern) {
			found, err := r.read(name)
			if err != nil {
				failed = err
				continue
			}
			out = append(out, found)
		}
	}
	return out, failed
}

// glob returns the paths, in the runtime's mount namespace, that match a pattern in their
// last part.
func (r process) glob(pattern string) []string {
	dir, last := filepath.Split(pattern)
	if !strings.Contains(last, "*") {
		return []string{pattern}
	}
	d, err := r.open(dir, unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()       // only read from
	names, _ := d.Readdirnames(maxEntries) // those that are read
	names = slices.DeleteFunc(names, func(name string) bool {
		matches, err := filepath.Match(last, name)
		return err != nil || !matches
	})
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // names have the time: newest first
	const newest = 4
	var out []string
	for _, name := range names[:min(len(names), newest)] {
		out = append(out, filepath.Join(dir, name))
	}
	return out
}

// open opens a path below the root directory of the runtime. It neither leaves that root nor
// blocks.
func (r process) open(path string, flags uint64) (*os.File, error) {
	root, err := unix.Open(r.root(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", r.root(), err)
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// read reads a dump from a regular file that only root could have written.
func (r process) read(path string) (*Found, error) {
	f, err := r.open(path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	const writableByOthers = 0o022
	if !info.Mode().IsRegular() || !ok || owner.Uid != 0 || owner.Nlink != 1 || info.Mode().Perm()&writableByOthers != 0 {
		return nil, fmt.Errorf("%s is not a regular file of root", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &Found{Program: r.name, PID: r.PID, Source: path, Time: info.ModTime(), Text: text}, nil
}
