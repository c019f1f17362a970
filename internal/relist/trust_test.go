package relist

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// change makes a container that no event tells of.
func (l *eventedLoop) change(id string) {
	l.rt.set(func(s *script) { s.containers = append(s.containers, container("a", id, cri.StateRunning)) })
}

// relisted makes a relist, and waits until what it found counts.
func (l *eventedLoop) relisted() {
	<-l.Relist()
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

// TestMissedInGaps: what is missed around a gap of the stream is counted, and
// begins and extends no run; what is missed without one does.
func TestMissedInGaps(t *testing.T) {
	for name, cut := range map[string]func(l *eventedLoop, id string){
		"found in the gap": func(l *eventedLoop, id string) {
			l.Interrupted()
			l.change(id)
			l.relisted()
			l.Listening(true)
		},
		"found after it": func(l *eventedLoop, id string) {
			l.Interrupted()
			l.change(id)
			time.Sleep(30 * time.Second)
			l.Listening(true)
		},
		"found before it": func(l *eventedLoop, id string) {
			l.change(id)
			<-l.Relist()
			time.Sleep(time.Millisecond)
			l.Interrupted()
			l.Listening(true)
		},
		"told by an event that plegd drops": func(l *eventedLoop, id string) {
			time.Sleep(time.Millisecond)
			l.change(id)
			l.Tell(&cri.ContainerEvent{ContainerID: id, Bytes: maxQueued + 1})
		},
		"told of after the relist, as after a pause": func(l *eventedLoop, id string) {
			l.change(id)
			<-l.Relist()
			time.Sleep(time.Second)
			l.Interrupted()
			time.Sleep(time.Second)
			l.Listening(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newEvented(t)
				<-l.Relist() // shows where things stand
				for i := range 2 {
					cut(l, fmt.Sprint("cut", i))
					l.relisted()
					time.Sleep(time.Minute)
				}
				if s := l.Snapshot().Trust; s.Missed != 2 || !s.LastMissed.IsZero() || !s.MissedSince.IsZero() {
					t.Errorf("after two cuts: %+v, want two missed and no run of them", s)
				}
				began := time.Now()
				for i := range 2 {
					l.change(fmt.Sprint("lost", i))
					l.relisted()
					time.Sleep(20 * time.Second)
				}
				if s := l.Snapshot().Trust; s.Missed != 4 || s.MissedSince.Before(began) || s.LastMissed.Sub(s.MissedSince) < 20*time.Second {
					t.Errorf("after two that no gap explains: %+v, want four missed and a run of two", s)
				}
				last := l.Snapshot().Trust.LastMissed
				cut(l, "cut again")
				l.relisted()
				if s := l.Snapshot().Trust; s.Missed != 5 || !s.LastMissed.Equal(last) {
					t.Errorf("after another cut: %+v, want five missed and a run no longer", s)
				}
			})
		})
	}
}

// TestMissedCountedLate: what is counted only after plegd was paused says
// nothing: its event may wait to be read.
func TestMissedCountedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrust(2 * DefaultPeriod)
		tr.found("a", running)
		tr.found("b", exited)
		time.Sleep(time.Minute)
		tr.expire(time.Now())
		if tr.Missed != 2 || !tr.LastMissed.IsZero() {
			t.Errorf("%+v, want two missed and no run of them", tr.Trust)
		}
		tr.found("c", running)
		time.Sleep(5 * time.Second)
		tr.expire(time.Now())
		if tr.Missed != 3 || tr.LastMissed.IsZero() {
			t.Errorf("%+v, want a third one that begins a run", tr.Trust)
		}
	})
}
