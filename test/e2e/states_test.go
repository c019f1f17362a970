//go:build e2e

package e2e

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
