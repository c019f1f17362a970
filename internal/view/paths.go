package view

// The paths that plegd serves. /healthz is the node's health, /-/healthy and
// /-/ready are plegd's own.
const (
	PathMetrics = "/metrics"
	PathHealthz = "/healthz"
	PathHealthy = "/-/healthy"
	PathReady   = "/-/ready"
	PathStatus  = "/api/v1/status"
	// PathIncidents lists the incidents; one with its timeline is under it, by its
	// id.
	PathIncidents = "/api/v1/incidents"
	// PathIncidentPages has a page for each incident under it, by its id.
	PathIncidentPages = "/incidents"
)
