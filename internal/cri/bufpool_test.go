package cri

import "testing"

// TestFramePoolGivesBack: what one answer needs is there for the next, and what
// an oversized one needed is let go of when others have come and gone.
func TestFramePoolGivesBack(t *testing.T) {
	p := &framePool{}
	answer := func(frames int) {
		var all []*[]byte
		for range frames {
			all = append(all, p.Get(frameBytes))
		}
		for _, b := range all {
			p.Put(b)
		}
		p.answered()
	}
	answer(1000)
	if n := testing.AllocsPerRun(5, func() {
		b := p.Get(100)
		if len(*b) != 100 {
			t.Errorf("a buffer of %d bytes", len(*b))
		}
		p.Put(b)
	}); n > 0 {
		t.Errorf("%v allocations to use a buffer again", n)
	}
	for range 3 * window {
		answer(10)
	}
	if len(p.free) != 10 {
		t.Errorf("%d buffers are kept for answers of 10", len(p.free))
	}
	large := p.Get(frameBytes + 1)
	if len(*large) != frameBytes+1 {
		t.Errorf("a buffer of %d bytes", len(*large))
	}
	p.Put(large)
	if len(p.free) != 10 || p.out != 0 {
		t.Errorf("%d buffers kept, %d in use", len(p.free), p.out)
	}
}
