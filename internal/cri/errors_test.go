package cri

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
)

// TestMessageTooLarge: whose limit it was, how large the answer was and what
// was allowed, in the error, in the history and for the observer.
func TestMessageTooLarge(t *testing.T) {
	const oversize = MaxMessageBytes + 1<<20
	for _, tt := range []struct {
		name     string
		server   fakeruntime.Options
		byServer bool
		limit    int
	}{
		{"the client's limit", fakeruntime.Options{MaxSendMsgSize: 80 << 20}, false, MaxMessageBytes},
		{"the server's limit", fakeruntime.Options{MaxSendMsgSize: 1 << 20}, true, 1 << 20},
		{"both are 16 MiB", fakeruntime.Options{}, true, MaxMessageBytes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := serve(t, tt.server)
			rt.FillPods(3, 1)
			c, seen := clientOf(t, rt, Options{})
			for _, op := range []string{OpListContainers, OpListPodSandbox} {
				rt.Set(rpcOf(op), fakeruntime.Oversize(oversize))
				e := failure(t, calls(c, "", "")[op](t.Context()))
				want := facts.CallError{Operation: op, Code: CodeResourceExhausted, Message: e.Message, Bytes: oversize, Limit: tt.limit, ByServer: tt.byServer}
				if *e != want || e.Bytes == 0 || e.NotInitialized {
					t.Errorf("error %+v, want %+v", *e, want)
				}
				if got := seen.last(t); got.Code != CodeResourceExhausted || got.Bytes != oversize {
					t.Errorf("the observer was told %+v", got)
				}
				if h := c.History(op); h.Bytes != oversize || h.LastErr != e {
					t.Errorf("history %+v", h)
				}
				// It is a matter of that list alone, and over when the list shrinks.
				if _, err := c.Version(t.Context()); err != nil {
					t.Error(err)
				}
				rt.Set(rpcOf(op))
				check.NoError(t, calls(c, "", "")[op](t.Context()), "%s, once the list is small", op)
			}
		})
	}
}

func TestOldRuntimeIsUnimplemented(t *testing.T) {
	rt := serve(t, fakeruntime.Options{OnlyV1Alpha2: true})
	c, seen := clientOf(t, rt, Options{})
	for op, call := range calls(c, "s", "c") {
		e := failure(t, call(t.Context()))
		if e.Code != CodeUnimplemented || seen.last(t).Code != CodeUnimplemented || !strings.Contains(e.Message, "runtime.v1.RuntimeService") {
			t.Errorf("%s: %+v, want Unimplemented and the service's name", op, e)
		}
	}
}

func TestErrorCodes(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, seen := clientOf(t, rt, Options{})
	for _, tt := range []struct {
		code           codes.Code
		message        string
		want           string
		notInitialized bool
	}{
		{codes.Unknown, "server is not initialized yet", CodeUnknown, true},
		{codes.Unavailable, "server is not initialized yet", CodeUnavailable, true}, // from containerd 2.0 on
		{codes.Unavailable, "another error", CodeUnavailable, false},
		{codes.Unknown, "rpc error: context deadline exceeded", CodeDeadlineExceeded, false},
		{codes.Unknown, `failed to get container: context deadline exceeded: unknown`, CodeDeadlineExceeded, false},
		{codes.Unknown, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock", CodeUnknown, false},
		{codes.Internal, "context deadline exceeded", "Internal", false},
		{codes.DeadlineExceeded, "", CodeDeadlineExceeded, false},
		{codes.NotFound, "no such container", CodeNotFound, false},
		{codes.ResourceExhausted, "too many requests", CodeResourceExhausted, false},
		{codes.PermissionDenied, "no", "PermissionDenied", false},
	} {
		t.Run(fmt.Sprintf("%s %s", tt.code, tt.message), func(t *testing.T) {
			rt.Set("Status", fakeruntime.Error(tt.code, tt.message))
			_, err := c.Status(t.Context())
			e := failure(t, err)
			if e.Code != tt.want || e.NotInitialized != tt.notInitialized || e.Bytes > 0 || e.Operation != OpStatus {
				t.Errorf("%+v, not initialized %t; want %s, %t", *e, e.NotInitialized, tt.want, tt.notInitialized)
			}
			if tt.message != "" && !strings.HasSuffix(err.Error(), tt.message) {
				t.Errorf("it says %q; the runtime said %q", err, tt.message)
			}
			if got := seen.last(t); got.Code != tt.want {
				t.Errorf("the observer was told %+v", got)
			}
		})
	}
}

// TestBrokenAnswers: an answer that is no message fails the call and nothing
// else, and an empty one is an empty list.
func TestBrokenAnswers(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	pod := rt.FillPods(2, 1)[0]
	c, _ := clientOf(t, rt, Options{})
	for op, call := range calls(c, pod.SandboxID, pod.ContainerIDs[0]) {
		rt.Set(rpcOf(op), fakeruntime.Garbage())
		check.Equal(t, failure(t, call(t.Context())).Code, "Internal", "%s", op)
		rt.Set(rpcOf(op), fakeruntime.Empty())
		check.NoError(t, call(t.Context()), "%s: an empty answer", op)
		rt.Set(rpcOf(op))
		check.NoError(t, call(t.Context()), "%s: afterwards", op)
	}
}

// TestForeign: only what the other end has sent proves that it is not gRPC.
func TestForeign(t *testing.T) {
	for _, tt := range []struct {
		message string
		want    bool
	}{
		{`connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`, true},
		{`connection error: desc = "error reading server preface: http2: frame too large"`, true},
		{`connection error: desc = "initial http2 frame from server is not a settings frame: *http2.PingFrame"`, true},
		{`unexpected HTTP status code received from server: 503 (Service Unavailable); transport: received unexpected content-type "text/html"`, true},
		{`connection error: desc = "error reading server preface: EOF"`, false},
		{`connection error: desc = "error reading server preface: read unix @->/run/x.sock: read: connection reset by peer"`, false},
		{`connection error: desc = "transport: error while dialing: dial unix /run/x.sock: connect: no such file or directory"`, false},
		{`connection error: desc = "transport: error while dialing: dial unix /run/x.sock: connect: connection refused"`, false},
		{`error reading from server: EOF`, false},
		{`server is not initialized yet`, false},
	} {
		check.Equal(t, Foreign(&facts.CallError{Code: CodeUnavailable, Message: tt.message}), tt.want, "foreign: %s", tt.message)
	}
}

// TestAsError: an error of another kind becomes a call's.
func TestAsError(t *testing.T) {
	if e := AsError(errors.New("boom")); e.Code != CodeUnknown || e.Message != "boom" || AsError(nil) != nil {
		t.Errorf("%+v", e)
	}
}
