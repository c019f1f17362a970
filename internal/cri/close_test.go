package cri

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestCloseEndsWhatHangs: calls in flight end at once, at any stage, and later ones
// fail.
func TestCloseEndsWhatHangs(t *testing.T) {
	for name, fault := range map[string]func(*fakeruntime.Runtime){
		"a call":       func(rt *fakeruntime.Runtime) { rt.Set("ContainerStatus", fakeruntime.Hang()) },
		"not accepted": func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.NoAccept()) },
		"no settings":  func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.NoSettings()) },
		"frozen":       func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.Freeze()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				fault(rt)
				c, seen := clientOf(t, rt, Options{})
				ended := make(chan error, 3)
				for range 3 {
					go func() { ended <- c.StatusOf(t.Context(), &Entry{ID: "c"}) }()
				}
				time.Sleep(7 * time.Second)
				synctest.Wait()
				start := time.Now()
				must.Do(t, c.Close())
				for range 3 {
					check.Equal(t, failure(t, <-ended).Code, CodeCanceled, "a call under way")
				}
				check.Equal(t, time.Since(start), 0, "they ended after Close")
				if h := c.History(OpContainerStatus); !h.InFlightSince.IsZero() {
					t.Errorf("still in flight since %v", h.InFlightSince)
				}
				if got := seen.last(t); got.Code != CodeCanceled || got.Duration != 7*time.Second {
					t.Errorf("the observer was told %+v", got)
				}
				dials := rt.Dials()
				if _, err := c.Version(t.Context()); failure(t, err).Code != CodeCanceled {
					t.Errorf("a call after Close: %v, want Canceled", err)
				}
				if err := c.Connect(t.Context()); err == nil {
					t.Error("Connect after Close: no error")
				}
				check.NoError(t, c.Close(), "Close again")
				time.Sleep(time.Hour)
				if n := rt.Dials(); n != dials {
					t.Errorf("%d connections after Close", n-dials)
				}
			})
		})
	}
}

// TestConnect waits for the runtime's SETTINGS and no longer than it may.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		c, seen := clientOf(t, rt, Options{})
		rt.Set(fakeruntime.Socket, fakeruntime.NoAccept())
		start := time.Now()
		if err := c.Connect(within(t, time.Second)); err == nil || time.Since(start) != time.Second {
			t.Errorf("not accepted: %v after %v", err, time.Since(start))
		}
		if dial := c.LastDial(); dial == nil || dial.Err != nil || dial.Duration != 0 {
			t.Errorf("last dial %+v, want one that was made", dial)
		}
		time.AfterFunc(3*time.Second, func() { rt.Set(fakeruntime.Socket) })
		if err := c.Connect(within(t, time.Minute)); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("accepted after 4s: %v after %v", err, time.Since(start))
		}
		check.NoError(t, c.Connect(t.Context()), "connected already")
		rt.Stop()
		synctest.Wait()
		if err := c.Connect(t.Context()); err == nil {
			t.Error("stopped: no error")
		}
		must.Do(t, rt.Restart())
		check.NoError(t, c.Connect(t.Context()), "back")
		if len(seen.all()) > 0 {
			t.Errorf("Connect made calls: %v", seen.all())
		}
	})
}
