package health

import "slices"

// FactsSchema is the version of Facts as they are written down. Fields may be
// added under one version, and an older plegd passes over those that it does
// not know; it grows when one is renamed, removed or changes meaning.
const FactsSchema = 1

// Known tells whether the table has a reason of this id.
func Known(id string) bool {
	return slices.ContainsFunc(table, func(r Reason) bool { return r.ID == id })
}
