package facts

import (
	"fmt"
	"time"
)

// Seconds prints a duration with about two digits that matter: 0.4ms, 12ms, 2.3s, 47s, 2m13s, 3h04m, 2d05h.
func Seconds(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s <= 0:
		return "0s"
	case s < 0.00995:
		return fmt.Sprintf("%.1fms", s*1e3)
	case s < 0.9995:
		return fmt.Sprintf("%.0fms", s*1e3)
	case s < 9.95:
		return fmt.Sprintf("%.1fs", s)
	}
	n := int64(s + 0.5)
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", n)
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 48*3600:
		return fmt.Sprintf("%dh%02dm", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n%86400/3600)
}

// Count prints a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
