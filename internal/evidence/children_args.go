package evidence

import (
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// sandboxOf returns the id of the sandbox that a shim or conmon serves, "" where
// its arguments do not tell: a shim's -id is that of its pod's sandbox; a
// conmon's -c is a container's, and only that of the infra container, named
// k8s_POD_, is the sandbox's too.
func sandboxOf(comm string, args []string) string {
	id := proc.ArgValue(args, "id")
	if strings.HasPrefix(comm, "conmon") {
		id = ""
		if strings.HasPrefix(proc.ArgValue(args, "n"), "k8s_POD_") {
			id = proc.ArgValue(args, "c")
		}
	}
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
