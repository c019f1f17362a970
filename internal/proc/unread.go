package proc

import "maps"

// Unread are the parts that a sample needs and that could not be read, with the outcome of each:
// "denied", "larger than 50000 lines", "no answer in time". Absence is no such outcome.
type Unread map[string]string

// Add notes a part that an error kept from being read.
func (u Unread) Add(part string, err error) {
	outcome := OutcomeOf(err)
	if outcome == "" || outcome == Absent {
		return
	}
	u[part] = Why(err)
}

// Drain returns the parts and begins with none; nil for none.
func (u Unread) Drain() map[string]string {
	if len(u) == 0 {
		return nil
	}
	parts := maps.Clone(u)
	clear(u)
	return parts
}
