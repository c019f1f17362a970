package daemon

import (
	"fmt"
	"testing"
	"time"
)

// TestSlowInspectionsKeepTheirName: while each inspection takes a second and the pods
// change all the time, the primary reason does not change. RelistSlow needs more than
// 10 s of evidence: its first appearance is no change.
func TestSlowInspectionsKeepTheirName(t *testing.T) {
	for _, churn := range []float64{0.02, 0.5} {
		t.Run(fmt.Sprintf("%g changing", churn), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(60, 2), nil)
				w.at(20 * time.Second)
				w.fail("PodSandboxStatus=delay(1s);ContainerStatus=delay(1s)")
				changes, last := 0, ""
				for at := 20 * time.Second; at < 220*time.Second; at += 250 * time.Millisecond {
					if at%time.Second == 0 {
						w.rt.Churn(churn)
					}
					v := w.at(at).Verdict
					if v.Reason != last && last != "" && at > 40*time.Second {
						changes++
						t.Logf("%s: %s -> %s", at, last, v.Reason)
					}
					last = v.Reason
				}
				if changes > 1 {
					t.Errorf("the primary reason changed %d times in 200 s", changes)
				}
			})
		})
	}
}
