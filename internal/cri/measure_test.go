package cri

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestCallsAreMeasured: the observer gets each call under the kubelet's name, with the
// bytes of its answer and its duration.
func TestCallsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		pod := rt.FillPods(20, 2)[0]
		c, seen := clientOf(t, rt, Options{})
		if _, err := c.Version(t.Context()); err != nil { // connects
			t.Fatal(err)
		}
		all := calls(c, pod.SandboxID, pod.ContainerIDs[0])
		must.Equal(t, len(all), len(Operations()), "calls and operations")
		for i, op := range Operations() {
			rt.Set(rpcOf(op), fakeruntime.Delay(time.Duration(i+1)*250*time.Millisecond))
			start := time.Now()
			must.Do(t, all[op](t.Context()))
			got := seen.last(t)
			want := Call{Operation: op, Start: start, Duration: time.Since(start), Bytes: got.Bytes, Code: CodeOK}
			if got != want || got.Bytes == 0 || got.Duration != time.Duration(i+1)*250*time.Millisecond {
				t.Errorf("%+v, want %+v", got, want)
			}
			h := c.History(op)
			if !h.LastOK.Equal(time.Now()) || h.LastOKDuration != want.Duration || h.Bytes != want.Bytes || h.LastErr != nil || !h.InFlightSince.IsZero() {
				t.Errorf("%s: history %+v", op, h)
			}
		}
		check.Equal(t, len(seen.all()), 1+len(all), "the observer got calls")
	})
}

// TestEveryCallTimesOut: a call that hangs ends after the kubelet's 2 minutes, even if
// the caller's limit is longer, and the observer gets that error.
func TestEveryCallTimesOut(t *testing.T) {
	for _, op := range Operations() {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				c, seen := clientOf(t, rt, Options{})
				rt.Set(rpcOf(op), fakeruntime.Hang())
				start := time.Now()
				err := calls(c, "s", "c")[op](t.Context())
				check.Equal(t, time.Since(start), 2*time.Minute, "it ended")
				e := failure(t, err)
				if e.Code != CodeDeadlineExceeded || e.Operation != op {
					t.Errorf("error %+v", e)
				}
				got := seen.last(t)
				if got.Operation != op || got.Code != CodeDeadlineExceeded || got.Duration != 2*time.Minute || got.Bytes != 0 {
					t.Errorf("the observer got %+v", got)
				}
			})
		})
	}
}

// TestTheCallersDeadline ends a call earlier, and its end at once.
func TestTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		c, _ := clientOf(t, rt, Options{RPCTimeout: 20 * time.Second})
		rt.Set("Version", fakeruntime.Hang())
		for _, tt := range []struct {
			patience, want time.Duration
		}{{5 * time.Second, 5 * time.Second}, {time.Minute, 20 * time.Second}} {
			start := time.Now()
			_, err := c.Version(within(t, tt.patience))
			if d := time.Since(start); d != tt.want || failure(t, err).Code != CodeDeadlineExceeded {
				t.Errorf("with %v: %v after %v, want DeadlineExceeded after %v", tt.patience, err, d, tt.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		_, err := c.Version(ctx)
		if d := time.Since(start); d != 3*time.Second || failure(t, err).Code != CodeCanceled {
			t.Errorf("cancelled after 3s: %v after %v", err, d)
		}
		cancel()
		if _, err := c.Version(ctx); failure(t, err).Code != CodeCanceled {
			t.Errorf("cancelled before the call: %v", err)
		}
	})
}

// TestHistory follows one operation through success, a hang and a failure.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		c, _ := clientOf(t, rt, Options{})
		check.Equal(t, c.History(OpStatus), facts.Call{}, "before the first call")
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		good := c.History(OpStatus)
		if !good.LastOK.Equal(time.Now()) || good.Bytes == 0 || good.LastErr != nil || !good.LastFailed.IsZero() {
			t.Errorf("after a good one: %+v", good)
		}

		// Two calls hang; the older one is the one that counts.
		rt.Set("Status", fakeruntime.Hang())
		first := time.Now()
		ended := make(chan error, 2)
		go func() { _, err := c.Status(within(t, 30*time.Second)); ended <- err }()
		time.Sleep(10 * time.Second)
		second := time.Now()
		go func() { _, err := c.Status(within(t, 30*time.Second)); ended <- err }()
		synctest.Wait()
		if h := c.History(OpStatus); !h.InFlightSince.Equal(first) || !h.LastOK.Equal(good.LastOK) || h.LastErr != nil {
			t.Errorf("while two hang: %+v, want in flight since %v", h, first)
		}
		if h := c.History(OpVersion); !h.InFlightSince.IsZero() {
			t.Errorf("another operation is in flight since %v", h.InFlightSince)
		}
		<-ended
		synctest.Wait()
		if h := c.History(OpStatus); !h.InFlightSince.Equal(second) || h.LastErr == nil || h.LastErr.Code != CodeDeadlineExceeded || !h.LastFailed.Equal(time.Now()) {
			t.Errorf("when the older one has ended: %+v, want in flight since %v", h, second)
		}
		<-ended
		synctest.Wait()
		h := c.History(OpStatus)
		if !h.InFlightSince.IsZero() || !h.LastFailed.Equal(time.Now()) || !h.LastOK.Equal(good.LastOK) || h.LastOKDuration != good.LastOKDuration || h.Bytes != good.Bytes {
			t.Errorf("when both have ended: %+v", h)
		}

		// A success takes nothing from what failed.
		rt.Set("Status")
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := c.History(OpStatus); !now.LastOK.Equal(time.Now()) || now.LastErr != h.LastErr || !now.LastFailed.Equal(h.LastFailed) {
			t.Errorf("after a good one again: %+v", now)
		}
	})
}

// TestConcurrentCalls: inspections and Status continue while lists of many frames
// arrive, over one connection with reused buffers. Each call gets its own complete
// answer.
func TestConcurrentCalls(t *testing.T) {
	rt, path := listen(t, fakeruntime.Options{Seed: 5})
	pods := rt.FillPods(150, 2)
	rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
	rt.StopSandbox(pods[0].SandboxID)
	rt.AddRawContainer(&runtimeapi.Container{Id: "odd"})
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: "odd"})
	c := unixClient(t, path)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := i; ; n += 4 {
				select {
				case <-stop:
					return
				default:
				}
				pod := pods[n%len(pods)]
				if err := c.StatusOf(t.Context(), &Entry{Sandbox: true, ID: pod.SandboxID}); err != nil {
					t.Errorf("sandbox %s: %v", pod.SandboxID, err)
					return
				}
				err := c.StatusOf(t.Context(), &Entry{ID: pod.ContainerIDs[1]})
				var e *facts.CallError
				if errors.As(err, &e) && e.Code == CodeNotFound {
					continue // churned away
				}
				if err != nil {
					t.Errorf("container %s: %v", pod.ContainerIDs[1], err)
					return
				}
				if st, err := c.Status(t.Context()); err != nil || st.RuntimeReady == nil {
					t.Errorf("status %+v, %v", st, err)
					return
				}
			}
		})
	}
	for range 12 {
		rt.Churn(0.1)
		sameLists(t, rt, c)
	}
	close(stop)
	others.Wait()
}
