//go:build e2e

package e2e

import (
	"slices"

	"github.com/plegd/plegd/test/lab"
)

// The states of a verdict.
const (
	starting  = "starting"
	healthy   = "healthy"
	degraded  = "degraded"
	unhealthy = "unhealthy"
)

// The reasons that these tests bring about.
const (
	socketMissing      = "RuntimeSocketMissing"
	socketUnlinked     = "RuntimeSocketUnlinked"
	notListening       = "RuntimeNotListening"
	permissionDenied   = "RuntimeSocketPermissionDenied"
	unresponsive       = "RuntimeUnresponsive"
	frozen             = "RuntimeFrozen"
	runtimeStarting    = "RuntimeStarting"
	relistSlow         = "RelistSlow" // true of the one relist that a freeze has held up
	versionUnsupported = "CRIVersionUnsupported"
	unknown            = "Unknown"
	networkNotReady    = "NetworkNotReady"
)

// machine are the reasons that speak of the machine that the tests run on: one
// that is busy with other things says so, and is right.
var machine = []string{"NodeCPUStall", "NodeMemoryStall", "NodeIOStall"}

// well reports whether nothing is wrong with the runtime.
func well(s lab.Status) bool {
	return s.State == healthy || s.State == degraded && slices.Contains(machine, s.Reason)
}
