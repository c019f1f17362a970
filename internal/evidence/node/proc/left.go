package proc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// ErrLeftBehind is returned for a read that did not end in time.
var ErrLeftBehind = errors.New("the read did not end in time and was left behind")

// maxLeftBehind bounds the reads of one LeftBehind that have yet to come back.
const maxLeftBehind = 8

// LeftBehind reads files that can block as long as a process is wedged (cmdline,
// syscall, mem, mountinfo), each in a goroutine that is left behind when the read
// takes too long. While maxLeftBehind of them have not come back it reads nothing.
type LeftBehind struct {
	pending atomic.Int32
}

// Read returns at most limit bytes of a file from an offset, ErrLeftBehind after
// the time given.
func (l *LeftBehind) Read(path string, offset int64, limit int, within time.Duration) ([]byte, error) {
	if l.pending.Load() >= maxLeftBehind {
		return nil, ErrLeftBehind
	}
	type answer struct {
		b   []byte
		err error
	}
	l.pending.Add(1)
	back := make(chan answer, 1)
	go func() {
		defer l.pending.Add(-1)
		b, err := readAt(path, offset, limit)
		back <- answer{b, err}
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case a := <-back:
		return a.b, a.err
	case <-timer.C:
		return nil, ErrLeftBehind
	}
}

// Pending is the number of reads that have yet to come back.
func (l *LeftBehind) Pending() int { return int(l.pending.Load()) }

func readAt(path string, offset int64, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	b := make([]byte, 0, min(limit, 4<<10))
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.ReadAt(b[len(b):min(cap(b), limit)], offset+int64(len(b)))
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if len(b) > 0 {
				break // the memory ends here
			}
			return nil, err
		}
	}
	return b, nil
}
