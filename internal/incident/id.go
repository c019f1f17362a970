package incident

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// idTime is when an incident opened, as its id begins; what follows tells two of
// the same second apart.
const idTime = "20060102T150405Z"

func newID(opened time.Time) string {
	return fmt.Sprintf("%s-%06x", opened.UTC().Format(idTime), rand.N(1<<24))
}

// ValidID reports whether a text can be an incident's id.
func ValidID(id string) bool {
	day, rest, ok := strings.Cut(id, "-")
	if _, err := time.Parse(idTime, day); err != nil || !ok || len(rest) != 6 {
		return false
	}
	return strings.Trim(rest, "0123456789abcdef") == ""
}
