package fakeruntime_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/leaktest"
	"github.com/plegd/plegd/test/must"
)

// read reads until d has passed; an EOF or reset sets closed.
func read(t *testing.T, c net.Conn, d time.Duration) (got []byte, closed bool) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	got, err := io.ReadAll(c)
	var ne net.Error
	return got, !errors.As(err, &ne) || !ne.Timeout()
}

// readUntil reads until ok, or until the end of a long time; it waits for silence at least.
func readUntil(t *testing.T, c net.Conn, ok func(got []byte, closed bool) bool) (got []byte, closed bool) {
	t.Helper()
	for range 100 {
		var more []byte
		more, closed = read(t, c, silence)
		got = append(got, more...)
		if closed || ok(got, closed) {
			break
		}
	}
	return got, closed
}

// speak sends the begin of every HTTP/2 connection, and a ping, in one write: the other side
// may hang up after the first.
func speak(t *testing.T, c net.Conn) {
	t.Helper()
	var hello bytes.Buffer
	hello.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&hello, nil)
	must.Do(t, errors.Join(f.WriteSettings(), f.WritePing(false, [8]byte{})))
	_, _ = c.Write(hello.Bytes())
}

var settings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// silence is how long nothing must come for it to count as silence.
const silence = 300 * time.Millisecond

// socketFaults are the faults of the socket with a client's view: the answer, whether the
// connection is closed, and the same once the fault has ended.
var socketFaults = []struct {
	spec   string
	comes  func([]byte) bool
	closed bool
	after  func(got []byte, closed bool) bool
}{
	{"off", answers, false, nil},
	{"noaccept", silent, false, func(got []byte, closed bool) bool { return answers(got) && !closed }}, // what waited is served
	{"close", silent, true, nil},
	{"nosettings", silent, false, func(_ []byte, closed bool) bool { return closed }},
	{"settingsonly", func(got []byte) bool { return bytes.Equal(got, settings) }, false, nil},
	{"garbage", func(got []byte) bool { return len(got) >= 64 && !bytes.Contains(got, settings[:4]) }, false, nil},
	{"freeze", silent, false, nil},
}

func silent(got []byte) bool { return len(got) == 0 }

// answers reports whether SETTINGS and more have come.
func answers(got []byte) bool { return len(got) > len(settings) && got[3] == 4 }

// TestSocketFaults sees each fault with a bare connection: over a unix socket with
// the real clock, and in memory with the bubble's.
func TestSocketFaults(t *testing.T) {
	for _, tt := range socketFaults {
		see := func(t *testing.T, rt *fakeruntime.Runtime) {
			before, _ := rt.Accepted()
			c := dialRaw(t, rt)
			speak(t, c)
			wanted := func(got []byte, closed bool) bool { return tt.comes(got) && closed == tt.closed }
			if got, closed := readUntil(t, c, wanted); !wanted(got, closed) {
				t.Errorf("got %x, closed %v", got, closed)
			}
			accepted := func() bool { n, _ := rt.Accepted(); return n > before }
			if tt.spec == "noaccept" || tt.spec == "freeze" {
				must.Equal(t, accepted(), false, "a connection is accepted")
			} else {
				must.Eventually(t, time.Minute, "a connection is accepted", accepted)
			}
			if tt.spec == "garbage" {
				wantStatus(t, version(within(t, 10*time.Second), connect(t, rt)), codes.Unavailable, "")
			}
			if tt.after == nil {
				return
			}
			if err := rt.SetFailpoints("socket=" + tt.spec); err != nil { // again: it changes nothing
				t.Fatal(err)
			}
			if _, closed := read(t, c, silence); closed {
				t.Error("closed though the fault is the same")
			}
			rt.Set(fakeruntime.Socket)
			if got, closed := readUntil(t, c, tt.after); !tt.after(got, closed) {
				t.Errorf("after it: got %x, closed %v", got, closed)
			}
		}
		t.Run(tt.spec+"/unix", func(t *testing.T) {
			t.Parallel() // it waits on the real clock
			rt := fakeruntime.New(fakeruntime.Options{})
			must.Do(t, rt.SetFailpoints("socket="+tt.spec))
			must.Do(t, rt.Listen(filepath.Join(t.TempDir(), "s")))
			t.Cleanup(rt.Stop)
			see(t, rt)
		})
		t.Run(tt.spec+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := start(t, fakeruntime.Options{})
				must.Do(t, rt.SetFailpoints("socket="+tt.spec))
				see(t, rt)
				for range 3 { // Stop does not wait for clients that never speak
					dialRaw(t, rt)
				}
				synctest.Wait()
				began := time.Now()
				rt.Stop()
				if _, open := rt.Accepted(); open != 0 || time.Since(began) != 0 {
					t.Errorf("Stop took %v, %d connections are open", time.Since(began), open)
				}
			})
		})
	}
}

// TestAnswerIsWhatTheMarshallerWrites decodes lists that hold every kind of entry. Each
// answer has its content in another order, which clients' shortcuts are tested against.
func TestAnswerIsWhatTheMarshallerWrites(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	pods := rt.FillPods(20, 2)
	orders := map[string]bool{}
	check := func() {
		t.Helper()
		wantS, wantC := rt.Snapshot()
		gotS, err := client.ListPodSandbox(within(t, 10*time.Second), &runtimeapi.ListPodSandboxRequest{})
		must.Do(t, err)
		gotC, err := client.ListContainers(within(t, 10*time.Second), &runtimeapi.ListContainersRequest{})
		must.Do(t, err)
		orders[gotS.Items[0].Id+gotS.Items[1].Id] = true
		sortSandboxes(wantS)
		sortSandboxes(gotS.Items)
		sortContainers(wantC)
		sortContainers(gotC.Containers)
		check.Same(t, gotS.Items, wantS, "sandboxes", protocmp.Transform())
		check.Same(t, gotC.Containers, wantC, "containers", protocmp.Transform())
	}
	check()
	rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
	rt.StopSandbox(pods[1].SandboxID)
	rt.AddContainer(pods[2].UID, "late")
	rt.AddRawContainer(&runtimeapi.Container{Id: "raw", Labels: map[string]string{"": "x"}})
	check()
	rt.Churn(1)
	check()
	if len(orders) == 1 {
		t.Error("three answers have the same order")
	}
	rt.AddRawBytes([]byte{0x0a}, []byte{0x0a, 0x05, 0x0a, 0x03, 'r', 0xff, 'w'})
	_, err := client.ListPodSandbox(within(t, 10*time.Second), &runtimeapi.ListPodSandboxRequest{})
	wantStatus(t, err, codes.Internal, "unmarshal")
}

func sortSandboxes(l []*runtimeapi.PodSandbox) {
	slices.SortFunc(l, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.Id, b.Id) })
}

func sortContainers(l []*runtimeapi.Container) {
	slices.SortFunc(l, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.Id, b.Id) })
}

func TestChurn(t *testing.T) {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.FillPods(110, 2)
	states := func() (running, exited int) {
		_, containers := rt.Snapshot()
		for _, c := range containers {
			if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
				running++
			} else {
				exited++
			}
		}
		return running, exited
	}
	n := rt.Churn(0.1)
	if running, exited := states(); n != 11 || running != 220 || exited != 11 {
		t.Errorf("Churn(0.1) of 110 pods changed %d: %d run, %d have exited", n, running, exited)
	}
	total := 0
	for range 100 {
		total += rt.Churn(0.001)
	}
	for range 5 {
		rt.Churn(1)
	}
	if running, exited := states(); total != 11 || running != 220 || exited != 220 {
		t.Errorf("100 times Churn(0.001) changed %d, want 11; after much churn %d run, %d have exited, want one for each", total, running, exited)
	}
}

func TestMain(m *testing.M) { leaktest.Check(m) }

// start serves a runtime in memory until the test ends.
func start(t testing.TB, opts fakeruntime.Options) *fakeruntime.Runtime {
	t.Helper()
	rt := fakeruntime.New(opts)
	rt.Start()
	t.Cleanup(rt.Stop)
	return rt
}

// dial returns a connection that reconnects within 10 ms.
func dial(t testing.TB, rt *fakeruntime.Runtime, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(rt.DialContext),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, opts...)
	cc, err := grpc.NewClient("passthrough:///fakeruntime", opts...)
	must.Do(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func connect(t testing.TB, rt *fakeruntime.Runtime, opts ...grpc.DialOption) runtimeapi.RuntimeServiceClient {
	t.Helper()
	return runtimeapi.NewRuntimeServiceClient(dial(t, rt, opts...))
}

// within returns a context that ends after d, and with the test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// dialRaw connects without gRPC.
func dialRaw(t testing.TB, rt *fakeruntime.Runtime) net.Conn {
	t.Helper()
	c, err := rt.Dialer()(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
