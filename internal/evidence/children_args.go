package evidence

import (
	"bytes"
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

// argsReader reads the arguments of processes, once of each. /proc/PID/cmdline
// lies in the memory of the process, and reading it blocks while its memory map
// is locked, as of one that is stuck in the kernel: so it is read where it can be
// left behind, and taken when it comes. Not for several goroutines at once.
type argsReader struct {
	procfs  string
	known   map[procID][]string
	pending map[procID]chan []string
}

// of returns the arguments of a process, nil while they are not known.
func (r *argsReader) of(id procID) []string {
	if args, ok := r.known[id]; ok {
		return args
	}
	back, ok := r.pending[id]
	wait := time.Duration(0)
	if !ok {
		if id.pid == 0 || len(r.pending) >= argsPending {
			return nil
		}
		if r.known == nil {
			r.known, r.pending = map[procID][]string{}, map[procID]chan []string{}
		}
		back, wait = make(chan []string, 1), argsWait
		r.pending[id] = back
		file := pidPath(r.procfs, id.pid, "cmdline")
		go func() {
			b, _ := readFile(file, maxArgs)
			back <- splitArgs(b)
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

// forget drops the processes that are not among ids, by pid. One whose reader
// has yet to come back stays, so that there are never more of these.
func (r *argsReader) forget(ids map[int]procID) {
	for id := range r.known {
		if ids[id.pid] != id {
			delete(r.known, id)
		}
	}
	for id, back := range r.pending {
		select {
		case args := <-back:
			delete(r.pending, id)
			if ids[id.pid] == id {
				r.known[id] = args
			}
		default:
		}
	}
}

// splitArgs splits a /proc/PID/cmdline.
func splitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// sandboxOf returns the id of the sandbox that a shim or conmon serves, "" where
// its arguments do not tell: a shim's -id is that of its pod's sandbox; a
// conmon's -c is a container's, and only that of the infra container, named
// k8s_POD_, is the sandbox's too.
func sandboxOf(comm string, args []string) string {
	id := argValue(args, "id")
	if strings.HasPrefix(comm, "conmon") {
		id = ""
		if strings.HasPrefix(argValue(args, "n"), "k8s_POD_") {
			id = argValue(args, "c")
		}
	}
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// argValue returns the value of the first "-name value", "--name value" or
// "-name=value" among the arguments.
func argValue(args []string, name string) string {
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
