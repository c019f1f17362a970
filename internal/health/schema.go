package health

import "slices"

// FactsSchema is the version of Facts in files. Fields may be added under one
// version, and plegd ignores fields that it does not know. From the first release
// on it grows when a field is renamed, removed or changes its meaning; until then
// it is 1.
const FactsSchema = 1

// Known reports whether the table has a reason of this id.
func Known(id string) bool {
	return slices.ContainsFunc(table, func(r Reason) bool { return r.ID == id })
}
