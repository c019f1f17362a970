package fakeruntime_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// failing runs f in a bubble with a runtime of 3 pods that has the failpoints.
func failing(t *testing.T, spec string, f func(t *testing.T, rt *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, fakeruntime.Options{})
		rt.FillPods(3, 2)
		must.Do(t, rt.SetFailpoints(spec))
		f(t, rt, connect(t, rt))
	})
}

func list(ctx context.Context, c runtimeapi.RuntimeServiceClient) (int, error) {
	resp, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return len(resp.GetContainers()), err
}

func version(ctx context.Context, c runtimeapi.RuntimeServiceClient) error {
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v; want %v with %q", err, code, text)
	}
}

// TestFailpointHang: one list hangs until its deadline, a change of its failpoint or
// the end of the server, while other calls answer.
func TestFailpointHang(t *testing.T) {
	failing(t, "ListContainers=hang", func(t *testing.T, rt *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient) {
		start := time.Now()
		_, err := list(within(t, 2*time.Minute), c)
		wantStatus(t, err, codes.DeadlineExceeded, "")
		check.Equal(t, time.Since(start), 2*time.Minute, "hung for")
		check.NoError(t, version(t.Context(), c), "Version")
		results := make(chan error, 1)
		call := func() {
			go func() {
				_, err := list(t.Context(), c)
				results <- err
			}()
			synctest.Wait()
		}
		call()
		rt.Set("Status", fakeruntime.Error(codes.Internal, "")) // of another call
		synctest.Wait()
		if s := rt.Calls("ListContainers"); s.InFlight != 1 || len(results) != 0 {
			t.Fatalf("%+v: want one in flight", s)
		}
		rt.Set("ListContainers", fakeruntime.Error(codes.Aborted, "now this"))
		wantStatus(t, <-results, codes.Aborted, "now this")
		rt.Set("ListContainers", fakeruntime.Hang())
		call()
		rt.Stop()
		wantStatus(t, <-results, codes.Unavailable, "")
	})
}

func TestFailpointPanicCutsConnections(t *testing.T) {
	failing(t, "Status=1*panic", func(t *testing.T, rt *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient) {
		rt.Set("ListContainers", fakeruntime.Hang())
		other := make(chan error, 1)
		go func() {
			_, err := list(t.Context(), c)
			other <- err
		}()
		synctest.Wait()
		_, err := c.Status(t.Context(), &runtimeapi.StatusRequest{})
		wantStatus(t, err, codes.Unavailable, "")
		wantStatus(t, <-other, codes.Unavailable, "")
		// The runtime is back at once, as by systemd's Restart=.
		if _, err := c.Status(t.Context(), &runtimeapi.StatusRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
	})
}

func TestFailpointAnswers(t *testing.T) {
	failing(t, "ListContainers=1*delay(1m30s)->empty; ListPodSandbox=garbage; Status=notready(NetworkReady); Version=error(Unknown: a: b)",
		func(t *testing.T, _ *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient) {
			began := time.Now()
			if n, err := list(t.Context(), c); n != 6 || err != nil || time.Since(began) != 90*time.Second {
				t.Errorf("delay: %d, %v after %v", n, err, time.Since(began))
			}
			wantStatus(t, version(t.Context(), c), codes.Unknown, "a: b")
			if n, err := list(t.Context(), c); n != 0 || err != nil {
				t.Errorf("empty: %d, %v", n, err)
			}
			_, err := c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			wantStatus(t, err, codes.Internal, "unmarshal")
			resp, err := c.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
			must.Do(t, err)
			for _, cond := range resp.Status.Conditions {
				if ready := cond.Type != runtimeapi.NetworkReady; cond.Status != ready {
					t.Errorf("notready(NetworkReady): %v", cond)
				}
			}
			check.Equal(t, resp.Info["lastCNILoadStatus"], fakeruntime.CNILoadStatusNoConfig, "lastCNILoadStatus")
		})
}

func TestFailpointSequence(t *testing.T) {
	spec := "*=1*off->2*error(Unknown)->1*error(Internal);Version=off"
	failing(t, spec, func(t *testing.T, rt *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient) {
		check.Equal(t, rt.Failpoints().String(), "*=1*off->2*error(Unknown)->1*error(Internal);Version=off", "set")
		want := []codes.Code{codes.OK, codes.Unknown, codes.Unknown, codes.Internal, codes.OK, codes.OK}
		for i, code := range want {
			check.NoError(t, version(t.Context(), c), "Version has its own")
			if _, err := list(t.Context(), c); status.Code(err) != code {
				t.Errorf("call %d: %v, want %v", i, err, code)
			}
			if i == 1 {
				check.Equal(t, rt.Failpoints().String(), "*=1*error(Unknown)->1*error(Internal);Version=off", "after two calls there is left")
			}
		}
	})
}

func TestWriteCallsAreRefusedAndCounted(t *testing.T) {
	failing(t, "", func(t *testing.T, rt *fakeruntime.Runtime, c runtimeapi.RuntimeServiceClient) {
		if w := rt.WriteCalls(); len(w) != 0 {
			t.Errorf("before any: %v", w)
		}
		_, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{})
		wantStatus(t, err, codes.PermissionDenied, "StopContainer")
		_, err = c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{})
		wantStatus(t, err, codes.PermissionDenied, "RunPodSandbox")
		images := runtimeapi.NewImageServiceClient(dial(t, rt))
		_, err = images.PullImage(t.Context(), &runtimeapi.PullImageRequest{})
		wantStatus(t, err, codes.PermissionDenied, "PullImage")
		_, err = c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
		wantStatus(t, err, codes.Unimplemented, "")
		check.Equal(t, strings.Join(rt.WriteCalls(), " "), "StopContainer RunPodSandbox PullImage", "write calls")
	})
}

// TestImageService: clients ask for the images' file system before they list anything.
func TestImageService(t *testing.T) {
	failing(t, "", func(t *testing.T, rt *fakeruntime.Runtime, _ runtimeapi.RuntimeServiceClient) {
		images := runtimeapi.NewImageServiceClient(dial(t, rt))
		info, err := images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
		if err != nil || len(info.GetImageFilesystems()) != 1 || info.GetImageFilesystems()[0].GetFsId().GetMountpoint() == "" {
			t.Errorf("the images' file system: %v, %v", info, err)
		}
		list, err := images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if err != nil || len(list.GetImages()) != 0 {
			t.Errorf("the images: %v, %v", list, err)
		}
		if w := rt.WriteCalls(); len(w) != 0 {
			t.Errorf("these count as write calls: %v", w)
		}
	})
}

func TestParseFailpoints(t *testing.T) {
	for spec, want := range map[string]string{
		"":                    "",
		" ; ":                 "",
		"ListContainers=hang": "ListContainers=hang",
		"Status = 2 * off -> error( unavailable )":          "Status=2*off->error(Unavailable)",
		"*=error(Unknown: a (b; c) -> d: e)":                "*=error(Unknown: a (b; c) -> d: e)",
		"Status=delay(250ms);Version=1*delay(3m)->panic":    "Status=delay(250ms);Version=1*delay(3m0s)->panic",
		"ListContainers=oversize(17MiB)":                    "ListContainers=oversize(17825792)",
		"socket=3*close->1*off->noaccept;Version=1*garbage": "Version=1*garbage;socket=3*close->1*off->noaccept",
	} {
		f, err := fakeruntime.ParseFailpoints(spec)
		if err != nil || f.String() != want {
			t.Errorf("%q: %q, %v; want %q", spec, f, err, want)
		}
	}
}

// TestParseFailpointsErrors requires one line that names the term, the value and the
// allowed values.
func TestParseFailpointsErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"hang":                           `failpoint "hang": want name=term, as in ListContainers=hang`,
		"ListContainer=hang":             `failpoint "ListContainer": no such call; want a call of runtime.v1 such as ListContainers, * for all, or socket`,
		"Status=hang;Status=off":         `failpoint "Status": given twice; put its terms into one, with -> between`,
		"Status=error(Unknown:\nx)":      `want one line of name=term`,
		"Status=hung":                    `failpoint Status: type "hung": want one of off, error, delay, hang, panic,`,
		"Status=0*hang":                  `term "0*hang": count: want a whole number, 1 or more`,
		"Status=hang->off":               `failpoint Status: "hang" has no count, so "off" would never come: write 1*hang`,
		"Status=error(Nope)":             `failpoint "Status": term "error(Nope)": code "Nope": want one of gRPC's, such as Unavailable`,
		"Status=delay(soon)":             `failpoint "Status": term "delay(soon)": duration "soon": want one such as 150ms, 2s or 3m, 0 or more`,
		"Status=hang(1s)":                `failpoint "Status": term "hang(1s)": argument "1s": hang takes none`,
		"Status=oversize(17MB)":          `size "17MB": want a number of bytes, or with MiB, 0 to 1024MiB`,
		"Status=error(Unknown: a":        `want parentheses in pairs`,
		"Status=noaccept":                `failpoint Status: type "noaccept": want one of off, error,`,
		"socket=1*freeze->off":           `failpoint socket: "1*freeze": freeze takes no count, since no connection passes it`,
		"Status=notready(Ready)":         `condition "Ready": want RuntimeReady or NetworkReady`,
		"Version=notready(NetworkReady)": `failpoint Version: notready is for Status`,
	} {
		f, err := fakeruntime.ParseFailpoints(spec)
		if err == nil {
			t.Errorf("%q: parsed as %q; want an error", spec, f)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %s\nwant %s", spec, err, want)
		}
	}
}
