package evidence

import (
	"path"
	"slices"
	"strings"

	nodes "github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// ociRuntimes are the names of what a shim, a conmon or CRI-O starts for one
// step of a container. It is runc[:2:INIT] and the like that a container begins
// as, which may stay so by right: not meant.
var ociRuntimes = []string{"runc", "crun", "youki"}

func isOCIRuntime(comm string) bool { return slices.Contains(ociRuntimes, comm) }

// isHelper reports whether a child of the runtime or of a shim is one that is to end
// soon.
func (c *childrenSource) isHelper(s proc.Stat) bool {
	parent, _ := c.reader.Stat(c.procfs, s.PPID) // nothing where it has just ended
	return nodes.IsHelper(s, parent, c.args.Of(s.ID()))
}

// plainPath is a path of a socket to compare: /var/run is /run everywhere.
func plainPath(p string) string {
	return strings.Replace(path.Clean(p), "/var/run/", "/run/", 1)
}
