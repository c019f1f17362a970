// Package chaos breaks a real containerd at random for a given time, several ways at once,
// kills plegd now and then, and compares the injected faults with the recorded incidents.
//
//	make soak-chaos [DURATION=30m] [SEED=1]
//
// It needs what test/e2e needs. Of the faults that last longer than 10 s, 98 % must be in
// an incident by their exact reason, named within 3 s (8 s for what Status shows) and gone
// 5 s after their end; no incident may lie outside a fault; and plegd's memory, goroutines
// and descriptors must be where they began.
package chaos
