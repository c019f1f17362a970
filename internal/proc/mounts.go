package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxMounts bounds the lines of a mount table that are read, and maxMountLine one line in
	// bytes: an overlay with all its layers has up to one page of options.
	maxMounts    = 50_000
	maxMountLine = 64 << 10
	// mountsTimeout limits the wait for a whole table: 50,000 lines take the kernel 0.1 s.
	mountsTimeout = time.Second
	// maxMountOptions and maxOverlayOptions bound the options of a file system that are kept:
	// those of an overlay are the paths of its layers.
	maxMountOptions   = 1024
	maxOverlayOptions = 128
)

// Mount is one line of /proc/PID/mountinfo.
type Mount struct {
	ID     int
	Device string // major:minor
	Point  string
	Type   string
	Source string
	// Options are the mount's own, and after them those of its file system, cut to
	// their first 1024 bytes.
	Options string
}

// Mounts reads the mount table of a process. The error is TooLarge where it has more than
// 50,000 lines, beside those that were read, and Late where it cannot be read in time.
func (t *Table) Mounts(ctx context.Context, pid int) ([]Mount, error) {
	path := Path(t.ProcFS, pid, "mountinfo")
	return inSlot(ctx, t.lists[:], mountsTimeout, path, func(ctx context.Context) ([]Mount, error) {
		return readMounts(ctx, path, maxMounts)
	})
}

// readMounts reads a mount table of at most limit lines, one buffer at a time.
func readMounts(ctx context.Context, path string, limit int) ([]Mount, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	var out []Mount
	buffer := make([]byte, maxMountLine)
	filled := 0
	for ctx.Err() == nil {
		n, err := unix.Read(fd, buffer[filled:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return out, failed(path, err)
		}
		filled += n
		rest := buffer[:filled]
		out, rest = appendMounts(out, rest, n == 0)
		if n == 0 {
			return out, nil
		}
		filled = copy(buffer, rest)
		if len(out) > limit {
			return out[:limit], &ReadError{Path: path, Outcome: TooLarge, Limit: fmt.Sprintf("%d lines", limit)}
		}
		if filled == len(buffer) {
			return out, &ReadError{Path: path, Outcome: TooLarge, Limit: fmt.Sprintf("%d bytes in one line", filled)}
		}
	}
	return out, &ReadError{Path: path, Outcome: Late, Err: ctx.Err()}
}

// appendMounts decodes the whole lines at the beginning of b, and the last one too where it is
// the end of the file. It returns the rest of b.
func appendMounts(mounts []Mount, b []byte, atEnd bool) ([]Mount, []byte) {
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole && !atEnd {
			break
		}
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
		b = rest
	}
	return mounts, b
}

// parseMount decodes one line; blanks in paths stay written as \040. ok is false for an invalid one:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMount(line []byte) (Mount, bool) {
	head, tail, found := bytes.Cut(line, []byte(" - "))
	left := bytes.SplitN(head, []byte(" "), 7)
	right := bytes.SplitN(tail, []byte(" "), 3)
	if !found || len(left) < 6 || len(right) < 2 {
		return Mount{}, false
	}
	id, err := strconv.ParseUint(string(left[0]), 10, 31)
	if err != nil {
		return Mount{}, false
	}
	options := string(left[5])
	if len(right) == 3 {
		limit := maxMountOptions
		if string(right[0]) == "overlay" {
			limit = maxOverlayOptions
		}
		super := right[2]
		options += "," + string(super[:min(len(super), limit)])
	}
	return Mount{
		ID:      int(id),
		Device:  string(left[2]),
		Point:   string(left[4]),
		Type:    string(right[0]),
		Source:  string(right[1]),
		Options: options,
	}, true
}

// MountOf returns the mount that a path lies on: of several at one point the last.
func MountOf(mounts []Mount, path string) (Mount, bool) {
	var best Mount
	found := false
	for _, m := range mounts {
		if liesBelow(path, m.Point) && len(m.Point) >= len(best.Point) {
			best = m
			found = true
		}
	}
	return best, found
}

// liesBelow reports whether a path is a directory or below it.
func liesBelow(path, dir string) bool {
	rest, found := strings.CutPrefix(path, dir)
	return found && (rest == "" || rest[0] == '/' || strings.HasSuffix(dir, "/"))
}
