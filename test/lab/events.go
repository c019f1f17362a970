//go:build e2e

package lab

import "strconv"

// Event is a pod lifecycle event as plegd logs it at the level debug.
type Event struct {
	Type, PodUID, Pod, Namespace, ContainerID, Container string
	Sandbox                                              bool
	// ExitCode is "" where the line has none.
	ExitCode string
}

// Events returns the pod lifecycle events of a log from its n-th line on, by
// the id of the container or sandbox, each in the order of the log.
func (l *Log) Events(n int) map[string][]Event {
	events := make(map[string][]Event)
	for _, line := range l.Since(n) {
		if line.Message() != "pod lifecycle event" {
			continue
		}
		e := Event{
			Type: line.String("type"), PodUID: line.String("pod_uid"), Pod: line.String("pod"),
			Namespace: line.String("namespace"), ContainerID: line.String("container_id"),
			Container: line.String("container"),
		}
		e.Sandbox, _ = line.Fields["sandbox"].(bool)
		if code, ok := line.Number("exit_code"); ok {
			e.ExitCode = strconv.FormatFloat(code, 'f', -1, 64)
		}
		events[e.ContainerID] = append(events[e.ContainerID], e)
	}
	return events
}

// String is the event's type, with its exit code where there is one.
func (e Event) String() string {
	if e.ExitCode == "" {
		return e.Type
	}
	return e.Type + "(" + e.ExitCode + ")"
}
