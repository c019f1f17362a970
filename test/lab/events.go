//go:build e2e

package lab

// Event is a pod lifecycle event as plegd logs it at the level debug.
type Event struct {
	Type, PodUID, Pod, Namespace, ContainerID, Container string
	Sandbox                                              bool
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
		events[e.ContainerID] = append(events[e.ContainerID], e)
	}
	return events
}
