//go:build e2e

package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/lab"
)

// TestInsideRuntime: the chain of waiting goes on inside of a containerd that serves its
// goroutines: from the list to the request that holds its lock, and to the stopped shim.
func TestInsideRuntime(t *testing.T) {
	f := behindList(fault{on: onContainerd1})
	if why := f.leftOut(t); why != "" {
		t.Skip(why)
	}
	f.configure = func(b *bench) {
		b.ReplaceInConfig(firstPlugin, fmt.Sprintf("[debug]\n  address = %q\n%s", b.Socket+".debug", firstPlugin))
	}
	b := newBench(t, &f)
	b.watch(&f)
	cont := b.stopShims(1)
	end := b.holdList()
	shim := stoppedShim(b)
	lab.Eventually(t, 20*time.Second, "the chain names the request and the shim", func() error {
		_, body, err := b.plegd.GetControl(view.PathStatus)
		if err != nil {
			return err
		}
		var s facts.Snapshot
		if err := facts.Unmarshal([]byte(body), &s); err != nil {
			return err
		}
		holder := slices.IndexFunc(s.Chain, func(l facts.Link) bool {
			return l.Kind == facts.KindCall && l.Name == "UpdateContainerResources"
		})
		if holder != 1 || s.Chain[len(s.Chain)-1].PID != shim.PID {
			return fmt.Errorf("the chain is %+v", s.Chain)
		}
		return nil
	})
	inTurn(cont, end)()
}
