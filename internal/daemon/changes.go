package daemon

import "github.com/plegd/plegd/internal/cri"

// SandboxChanges tells what the held connection's last list of sandboxes
// changed; nothing is known of another connection's.
func (r *runtime) SandboxChanges() (ch cri.Changes[cri.Sandbox]) {
	if h := r.held.Load(); h != nil {
		ch = h.client.SandboxChanges()
	}
	return ch
}

// ContainerChanges is the same of containers.
func (r *runtime) ContainerChanges() (ch cri.Changes[cri.Container]) {
	if h := r.held.Load(); h != nil {
		ch = h.client.ContainerChanges()
	}
	return ch
}
