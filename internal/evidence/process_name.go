package evidence

import (
	"path"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxCommand is as much of a command as is shown, in bytes.
const maxCommand = 100

// namer finds out how a person knows a process: the command that it was started
// by, and its systemd unit. Not for several goroutines at once.
type namer struct {
	procfs string
	reader proc.Reader
	args   proc.ArgsReader
}

func newNamer(procfs string) namer {
	return namer{procfs: procfs, args: proc.ArgsReader{ProcFS: procfs}}
}

// of returns the first word of the process's arguments and its unit. Either is ""
// where it cannot be read. No more of the arguments is returned: they may hold a
// secret.
func (n *namer) of(id proc.ID) (command, unit string) {
	n.args.Forget(map[int]proc.ID{id.PID: id})
	if args := n.args.Of(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		if len(command) > maxCommand {
			command = command[:maxCommand]
		}
		command = strings.ToValidUTF8(command, "?")
	}
	if b, err := n.reader.Read(proc.Path(n.procfs, id.PID, "cgroup")); err == nil {
		unit = unitOf(cgroup.ParsePaths(b).Main())
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
