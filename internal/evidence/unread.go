package evidence

import (
	"maps"

	"github.com/plegd/plegd/internal/proc"
)

// unread are the parts that a sample needs and that could not be read, with the outcome of each:
// "denied", "larger than 50000 lines", "no answer in time". Absence is no such outcome.
type unread map[string]string

// add notes a part that an error kept from being read.
func (u unread) add(part string, err error) {
	outcome := proc.OutcomeOf(err)
	if outcome == "" || outcome == proc.Absent {
		return
	}
	u[part] = proc.Why(err)
}

// drain returns the parts and begins with none; nil for none.
func (u unread) drain() map[string]string {
	if len(u) == 0 {
		return nil
	}
	parts := maps.Clone(u)
	clear(u)
	return parts
}
