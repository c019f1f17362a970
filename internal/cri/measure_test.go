package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// TestCallsAreMeasured: the observer gets each call under the kubelet's name, with the
// bytes of its answer and its duration.
func TestCallsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		pod := rt.FillPods(20, 2)[0]
		c, seen := clientOf(t, rt, Options{})
		want := answerBytes(t, rt, pod.SandboxID, pod.ContainerIDs[0])
		if _, err := c.Version(t.Context()); err != nil { // connects
			t.Fatal(err)
		}
		all := calls(c, pod.SandboxID, pod.ContainerIDs[0])
		if len(all) != len(Operations()) {
			t.Fatalf("%d calls and %d operations", len(all), len(Operations()))
		}
		for i, op := range Operations() {
			rt.Set(rpcOf(op), fakeruntime.Delay(time.Duration(i+1)*250*time.Millisecond))
			start := time.Now()
			if err := all[op](t.Context()); err != nil {
				t.Fatal(err)
			}
			expect := Call{Operation: op, Start: start, Duration: time.Duration(i+1) * 250 * time.Millisecond, Bytes: want[op], Code: CodeOK}
			if diff := cmp.Diff(expect, seen.last(t)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", op, diff)
			}
			h := c.History(op)
			if !h.LastOK.Equal(time.Now()) || h.LastOKDuration != expect.Duration || h.Bytes != want[op] || h.LastErr != nil || !h.InFlightSince.IsZero() {
				t.Errorf("%s: history %+v", op, h)
			}
		}
		if got := len(seen.all()); got != 1+len(all) {
			t.Errorf("the observer got %d calls, want %d", got, 1+len(all))
		}
	})
}

// answerBytes asks with the generated client how large each answer is.
func answerBytes(t *testing.T, rt *fakeruntime.Runtime, sandbox, container string) map[string]int {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///fakeruntime", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(rt.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	api := runtimeapi.NewRuntimeServiceClient(conn)
	out := map[string]int{}
	size := func(op string, m proto.Message, err error) {
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		out[op] = proto.Size(m)
	}
	ctx := t.Context()
	v, err := api.Version(ctx, &runtimeapi.VersionRequest{})
	size(OpVersion, v, err)
	st, err := api.Status(ctx, &runtimeapi.StatusRequest{})
	size(OpStatus, st, err)
	ls, err := api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	size(OpListPodSandbox, ls, err)
	lc, err := api.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	size(OpListContainers, lc, err)
	ss, err := api.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	size(OpPodSandboxStatus, ss, err)
	cs, err := api.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
	size(OpContainerStatus, cs, err)
	return out
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
				if d := time.Since(start); d != 2*time.Minute {
					t.Errorf("it ended after %v, want 2m", d)
				}
				e := failure(t, err)
				if e.Code != CodeDeadlineExceeded || e.Operation != op {
					t.Errorf("error %+v", e)
				}
				got := seen.last(t)
				if got.Operation != op || got.Code != CodeDeadlineExceeded || got.Duration != 2*time.Minute || got.Bytes != 0 {
					t.Errorf("the observer was told %+v", got)
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
		if h := c.History(OpStatus); h != (health.Call{}) {
			t.Errorf("before the first call: %+v", h)
		}
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
