package view

import (
	"slices"

	"github.com/plegd/plegd/internal/cri"
)

// OperationRow is one line of the table of operations, in words.
type OperationRow struct {
	Name, LastOK, Took, Size, InFlight, LastError string
	// Failing is the error in full, without the name, while no call has
	// succeeded since; else empty.
	Failing string
}

// OperationRows returns one row for each operation.
func OperationRows(d *StatusDocument) []OperationRow {
	var rows []OperationRow
	for _, name := range operationNames(d) {
		o := d.Operations[name]
		r := OperationRow{Name: Say(name), LastOK: phraseAge(d, o.LastOK), Took: "-", Size: "-", InFlight: "-", LastError: "-"}
		if o.LastOKSeconds != nil {
			r.Took = FormatSeconds(*o.LastOKSeconds)
		}
		if o.Bytes != nil {
			r.Size = formatBytes(*o.Bytes)
		}
		if o.InFlightSeconds != nil {
			r.InFlight = FormatSeconds(*o.InFlightSeconds)
		}
		if o.LastError != nil {
			r.LastError = Say(o.LastError.Code)
			if o.LastFailed != nil {
				r.LastError += ", " + phraseAge(d, o.LastFailed)
			}
			if o.LastOK == nil || o.LastFailed != nil && o.LastFailed.After(*o.LastOK) {
				r.Failing = phraseReason(o.LastError)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// operationNames returns the operations of d in the order in which plegd calls
// them.
func operationNames(d *StatusDocument) []string {
	var out []string
	for _, op := range cri.Operations() {
		if _, ok := d.Operations[string(op)]; ok {
			out = append(out, string(op))
		}
	}
	var others []string
	for name := range d.Operations {
		if !slices.Contains(out, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(out, others...)
}
