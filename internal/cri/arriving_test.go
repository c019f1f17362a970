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

// TestSingleAnswersAreNoList: hundreds of single containers are asked for while a
// list hangs. Their answers must not look like that list.
func TestSingleAnswersAreNoList(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(200, 3)
	other, _ := clientOf(t, rt, Options{})
	list, err := other.ListContainers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := clientOf(t, rt, Options{})
	for _, container := range list {
		if err := c.Answers(t.Context(), false, container.ID); err != nil {
			t.Fatal(err)
		}
	}
	if at := c.Arriving(); !at.IsZero() {
		t.Errorf("%d answers about single containers: much arrived at %s", len(list), at)
	}
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Arriving().IsZero() {
		t.Error("the list itself did not arrive")
	}
}
