package cri

import (
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
)

// TestArriving: a large list is seen to come in; small answers are not, and hundreds about
// single containers, which are asked for while a list hangs, do not look like a list.
func TestArriving(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(200, 3)
	other, _ := clientOf(t, rt, Options{})
	list, err := other.ListContainers(t.Context())
	must.Do(t, err)
	c, _ := clientOf(t, rt, Options{})
	for _, container := range list {
		must.Do(t, c.Answers(t.Context(), container))
	}
	if at := c.Arriving(); !at.IsZero() {
		t.Errorf("%d answers about single containers: much arrived at %s", len(list), at)
	}
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Arriving().IsZero() {
		t.Error("a list of half a megabyte did not arrive")
	}
}
