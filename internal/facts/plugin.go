package facts

import "time"

// CRIPlugin is the state of containerd's CRI plugin, asked for when the server on the socket
// does not serve runtime.v1.
type CRIPlugin struct {
	At time.Time `json:"at,omitzero"`
	// Error is why the plugin was not loaded, as containerd reports it; "" for none.
	Error string `json:"error,omitzero"`
	// Absent is true where containerd has no such plugin: its configuration disables it.
	Absent bool `json:"absent,omitzero"`
}
