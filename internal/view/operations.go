package view

import (
	"maps"
	"slices"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// OperationRow is one line of the table of operations, in words.
type OperationRow struct {
	Name, LastOK, Took, Size, InFlight, LastError string
	// Failing is the error in full, without the name, while no call has
	// succeeded since; else empty.
	Failing string
}

// OperationRows returns one row for each operation.
func OperationRows(s *health.Snapshot) []OperationRow {
	var rows []OperationRow
	for _, name := range operationNames(s.Facts.Calls) {
		c := s.Facts.Calls[name]
		r := OperationRow{Name: Say(name), LastOK: Age(s, c.LastOK), Took: "-", Size: "-", InFlight: "-", LastError: "-"}
		if !c.LastOK.IsZero() {
			r.Took = Seconds(c.LastOKDuration)
		}
		if c.Answered() {
			r.Size = Bytes(c.Bytes)
		}
		if !c.InFlightSince.IsZero() {
			r.InFlight = Seconds(s.Age(c.InFlightSince))
		}
		if c.LastErr != nil {
			r.LastError = Say(c.LastErr.Code)
			if !c.LastFailed.IsZero() {
				r.LastError += ", " + Age(s, c.LastFailed)
			}
			if c.LastFailed.After(c.LastOK) {
				r.Failing = errorCause(c.LastErr)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// operationNames returns the operations in the order in which plegd calls them.
func operationNames(calls map[string]health.Call) []string {
	var out []string
	for _, op := range cri.Operations() {
		if _, ok := calls[string(op)]; ok {
			out = append(out, string(op))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
