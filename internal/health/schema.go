package health

import "slices"

// SchemaVersion is the version of Snapshot in JSON: of /api/v1/status, and of the
// files of incidents. Fields may be added under one version, and plegd ignores
// fields that it does not know; the version grows when a field is renamed, removed
// or changes its meaning. 1 had durations in nanoseconds.
const SchemaVersion = 2

// Known reports whether the table has a reason of this id.
func Known(id string) bool {
	return slices.ContainsFunc(table, func(r Reason) bool { return r.ID == id })
}
