package daemon

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowInspectionsKeepTheirName: while each inspection takes a second and the
// pods change all the time, the primary reason stays what it is. RelistSlow takes
// more than 10 s to be named: its first name is no change.
func TestSlowInspectionsKeepTheirName(t *testing.T) {
	for _, c := range []struct {
		pods  int
		churn float64
	}{{60, 0.02}, {60, 0.5}, {120, 0.1}} {
		t.Run(fmt.Sprintf("%d pods, %g changing", c.pods, c.churn), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(c.pods, 2), nil)
				w.at(20 * time.Second)
				w.fail("PodSandboxStatus=delay(1s);ContainerStatus=delay(1s)")
				changes, last := 0, ""
				for at := 20 * time.Second; at < 500*time.Second; at += 250 * time.Millisecond {
					if at%time.Second == 0 {
						w.rt.Churn(c.churn)
					}
					v := w.at(at).Verdict
					if v.Reason != last && last != "" && at > 40*time.Second {
						changes++
						t.Logf("%s: %s -> %s", at, last, v.Reason)
					}
					last = v.Reason
				}
				if changes > 1 {
					t.Errorf("the primary reason changed %d times in 480 s", changes)
				}
			})
		})
	}
}
