package evidence

import (
	"path"
	"strings"
)

// maxCommand is as much of a command as is shown, in bytes.
const maxCommand = 100

// namer finds out how a person knows a process: the command that it was started
// by, and its systemd unit. Not for several goroutines at once.
type namer struct {
	procfs string
	reader procReader
	args   argsReader
}

func newNamer(procfs string) namer {
	return namer{procfs: procfs, args: argsReader{procfs: procfs}}
}

// of returns the first word of the process's arguments and its unit. Either is ""
// where it cannot be read. No more of the arguments is returned: they may hold a
// secret.
func (n *namer) of(id procID) (command, unit string) {
	n.args.forget(map[int]procID{id.pid: id})
	if args := n.args.of(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		if len(command) > maxCommand {
			command = command[:maxCommand]
		}
		command = strings.ToValidUTF8(command, "?")
	}
	if b, err := n.reader.read(pidPath(n.procfs, id.pid, "cgroup")); err == nil {
		unit = unitOf(parseCgroups(b).path())
	}
	return command, unit
}

// unitOf returns the service in which a cgroup lies, "" for none. A scope is not
// returned: the name of a container's scope holds the container's id.
func unitOf(cgroup string) string {
	for dir := cgroup; dir != "/" && dir != "." && dir != ""; dir = path.Dir(dir) {
		if name := path.Base(dir); strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}
