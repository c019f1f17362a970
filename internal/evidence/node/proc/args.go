package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// argsWait is how long the arguments of a process are waited for.
	argsWait = 50 * time.Millisecond
	// argsPending bounds how many processes block a reader of their arguments
	// at a time.
	argsPending = 4
	// maxArgs is as much of the arguments as is looked at, in bytes.
	maxArgs = 16 << 10
)

// ArgsReader reads the arguments of processes, once of each. /proc/PID/cmdline
// lies in the memory of the process, and reading it blocks while its memory map
// is locked, as of one that is stuck in the kernel: so it is read where it can be
// left behind, and taken when it comes. Not for several goroutines at once.
type ArgsReader struct {
	ProcFS  string
	known   map[ID][]string
	pending map[ID]chan []string
}

// Of returns the arguments of a process, nil while they are not known.
func (r *ArgsReader) Of(id ID) []string {
	if args, ok := r.known[id]; ok {
		return args
	}
	back, ok := r.pending[id]
	wait := time.Duration(0)
	if !ok {
		if id.PID == 0 || len(r.pending) >= argsPending {
			return nil
		}
		if r.known == nil {
			r.known, r.pending = map[ID][]string{}, map[ID]chan []string{}
		}
		back, wait = make(chan []string, 1), argsWait
		r.pending[id] = back
		file := Path(r.ProcFS, id.PID, "cmdline")
		go func() {
			b, _ := ReadLimited(file, maxArgs)
			back <- SplitArgs(b)
		}()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case args := <-back:
		r.known[id] = args
		delete(r.pending, id)
		return args
	case <-timer.C:
		return nil
	}
}

// Forget drops the processes that are not among ids, by pid. One whose reader
// has yet to come back stays, so that there are never more of these.
func (r *ArgsReader) Forget(ids map[int]ID) {
	for id := range r.known {
		if ids[id.PID] != id {
			delete(r.known, id)
		}
	}
	for id, back := range r.pending {
		select {
		case args := <-back:
			delete(r.pending, id)
			if ids[id.PID] == id {
				r.known[id] = args
			}
		default:
		}
	}
}

// ReadLimited reads a file; an error where it has more than limit bytes.
func ReadLimited(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return b, err
}

// SplitArgs splits a /proc/PID/cmdline.
func SplitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// ArgValue returns the value of the first "-name value", "--name value" or
// "-name=value" among the arguments.
func ArgValue(args []string, name string) string {
	for i, arg := range args {
		bare, ok := strings.CutPrefix(arg, "-")
		if !ok {
			continue
		}
		bare = strings.TrimPrefix(bare, "-")
		if bare == name && i+1 < len(args) {
			return args[i+1]
		}
		if value, ok := strings.CutPrefix(bare, name+"="); ok {
			return value
		}
	}
	return ""
}
