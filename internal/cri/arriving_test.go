package cri

import (
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// TestArriving: a large list is seen to come in, small answers are not.
func TestArriving(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, _ := clientOf(t, rt, Options{})
	for range 20 {
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if at := c.Arriving(); !at.IsZero() {
		t.Errorf("20 small answers: much arrived at %s", at)
	}
	rt.FillPods(200, 3)
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Arriving().IsZero() {
		t.Error("a list of half a megabyte did not arrive")
	}
}
