package health

import (
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// liveRestore is what to look at before a restart that includes dockerd.
const liveRestore = "Before dockerd is restarted: `docker info -f '{{.LiveRestoreEnabled}}'` (where it hangs, " +
	"`grep live-restore /etc/docker/daemon.json`) must show true. Otherwise the restart ends every container of the node."

// stepsOf returns the steps of the verdict's primary reason with the node's own values, nil where
// there is none. A step that needs a value which the node does not show is left out.
func stepsOf(v *facts.Verdict, f *facts.Facts) []string {
	if v.Reason == "" {
		return nil
	}
	f = f.At(v.Hop)
	node := nodeWords(f, v.Reason, v.Chain)
	out := []string{}
	for _, step := range reasonOf(v.Reason).Steps {
		if filled, known := node.fill(step); known {
			out = append(out, filled)
		}
	}
	if !endsContainers(f) {
		return out
	}
	restart := slices.IndexFunc(out, func(step string) bool { return strings.Contains(step, "systemctl restart") })
	if restart >= 0 {
		return slices.Insert(out, restart, liveRestore)
	}
	if strings.HasPrefix(reasonOf(v.Reason).Restart, "No.") {
		return out
	}
	return append(out, liveRestore)
}

// endsContainers reports whether a restart of the reason's hop may end the node's containers: it includes dockerd.
func endsContainers(f *facts.Facts) bool {
	return f.Evidence.Hop.Caution != "" || runtimeUnit(f) == "docker"
}
