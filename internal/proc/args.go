package proc

import (
	"bytes"
	"strings"
)

// maxArgs bounds the arguments of a process, in bytes.
const maxArgs = 16 << 10

// program is what a process runs: it changes with execve(2), while the pid and the start do not.
type program struct {
	comm, exe string
	args      []string // nil where they could not be read in time
}

// Args returns the arguments of a process, nil where they cannot be read in time. They are read
// again when the process has begun another program.
func (t *Table) Args(id ID) []string {
	t.mu.Lock()
	known, found := t.programs[id]
	t.mu.Unlock()
	p, err := ReadStat(t.ProcFS, id.PID)
	if err != nil || p.ID() != id {
		return known.args // of before it ended
	}
	exe, _ := Link(Path(t.ProcFS, id.PID, "exe")) // "" where that is denied: the name still counts
	if found && known.comm == p.Comm && known.exe == exe {
		return known.args
	}
	next := program{comm: p.Comm, exe: exe}
	b, err := t.ReadSlow(Path(t.ProcFS, id.PID, "cmdline"), maxArgs)
	if err == nil {
		next.args = append([]string{}, SplitArgs(b)...) // of a kernel thread empty, and not nil
	}
	if err == nil && len(b) == 0 && t.ends(id) {
		return known.args
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.programs[id] = next
	return next.args
}

// ends reports whether a process has begun to end, or has ended: it has given up its memory, and with it its arguments.
func (t *Table) ends(id ID) bool {
	p, err := ReadStat(t.ProcFS, id.PID)
	return err != nil || p.ID() != id || p.Exiting || p.Dead()
}

// SplitArgs splits a /proc/PID/cmdline.
func SplitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// ArgValues returns the values of a flag among the arguments, written as --name=value or
// --name value, with one dash or two.
func ArgValues(args []string, name string) []string {
	var out []string
	for i, arg := range args {
		flag, isFlag := strings.CutPrefix(arg, "-")
		if !isFlag {
			continue
		}
		flag = strings.TrimPrefix(flag, "-")
		if value, joined := strings.CutPrefix(flag, name+"="); joined {
			out = append(out, value)
			continue
		}
		if flag == name && i+1 < len(args) {
			out = append(out, args[i+1])
		}
	}
	return out
}

// ArgValue returns the last value of a flag, which counts; "" where it is not given.
func ArgValue(args []string, name string) string {
	values := ArgValues(args, name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// Variable returns a variable of a /proc/PID/environ, "" where it has none. Of two values the first counts.
func Variable(environ []byte, name string) string {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		value, isIt := bytes.CutPrefix(variable, []byte(name+"="))
		if isIt {
			return string(value)
		}
	}
	return ""
}
