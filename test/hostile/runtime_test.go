//go:build e2e

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// serve serves a fake runtime of a few pods at a path of its own.
func serve(t *testing.T, o fakeruntime.Options, pods int) (*fakeruntime.Runtime, string) {
	t.Helper()
	rt := fakeruntime.New(o)
	rt.FillPods(pods, 2)
	path := filepath.Join(lab.Dir(t), "runtime.sock")
	if err := rt.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	return rt, path
}

// TestSocket: what listens at the runtime's socket is no runtime, or half of one.
func TestSocket(t *testing.T) {
	for name, tt := range map[string]struct {
		failpoints string
		reasons    []string
	}{
		"garbage instead of HTTP/2":     {"socket=garbage", []string{"CRIVersionUnsupported"}},
		"SETTINGS and then silence":     {"socket=settingsonly", []string{"RuntimeUnresponsive"}},
		"silence":                       {"socket=nosettings", []string{"RuntimeUnresponsive"}},
		"hangs up":                      {"socket=close", []string{"Unknown", "RuntimeRestarting"}},
		"answers that are no messages":  {"*=garbage", []string{"CRIVersionUnsupported"}},
		"answers with nothing in them":  {"*=empty", []string{"RuntimeNotReady"}},
		"lists of 15 MiB":               {"ListPodSandbox=oversize(15MiB);ListContainers=oversize(15MiB)", []string{"TooManyContainers"}},
		"answers that are all too long": {"*=oversize(17MiB)", []string{"ListResponseTooLarge"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{MaxSendMsgSize: 1 << 30}, 20)
			if err := rt.SetFailpoints(tt.failpoints); err != nil {
				t.Fatal(err)
			}
			p := start(t, socket, options{})
			d := p.awaitReason(tt.reasons...)
			t.Log(d)
			// It stays so, and once the runtime is well all is well.
			time.Sleep(2 * time.Second)
			p.awaitReason(tt.reasons...)
			if err := rt.SetFailpoints(""); err != nil {
				t.Fatal(err)
			}
			p.awaitReason("")
			p.relists(3)
		})
	}
}

// entries are n encoded list items with an id and nothing else.
func entries(n int, id func(int) string) []byte {
	var b []byte
	for i := range n {
		item := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id(i))
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), item)
	}
	return b
}

func number(i int) string { return fmt.Sprintf("%07x", i) }

// TestLists: lists such as no runtime sends.
func TestLists(t *testing.T) {
	const million = 1_000_000
	for name, tt := range map[string]struct {
		sandboxes, containers []byte
		reasons               []string
	}{
		"a million sandboxes":          {entries(million, number), nil, []string{"TooManyContainers"}},
		"a million containers":         {nil, entries(million, number), []string{"TooManyContainers"}},
		"six million empty entries":    {bytes.Repeat([]byte{0x0a, 0}, 6<<20), nil, []string{"TooManyContainers"}},
		"a million times the same id":  {entries(million, func(int) string { return "same" }), nil, []string{"TooManyContainers"}},
		"text that is no UTF-8":        {entries(3, func(int) string { return "\xff\xfe\x80" }), nil, []string{"Unknown"}},
		"an entry that is cut off":     {[]byte{0x0a, 0x7f, 0x0a}, nil, []string{"Unknown"}},
		"a length beyond all messages": {nil, []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, []string{"Unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			rt.AddRawBytes(tt.sandboxes, tt.containers)
			p := start(t, socket, options{})
			t.Log(p.awaitReason(tt.reasons...))
			p.relists(5)
			rt.ClearRaw()
			p.awaitReason("")
		})
	}
}

// TestEntries: entries that are encoded well and mean nothing good. The kubelet
// would continue, and so does plegd.
func TestEntries(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for name, add := range map[string]func(rt *fakeruntime.Runtime){
		"nil everywhere": func(rt *fakeruntime.Runtime) {
			rt.AddRawSandbox(&runtimeapi.PodSandbox{}, &runtimeapi.PodSandbox{Id: "a"}, &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{}})
			rt.AddRawContainer(&runtimeapi.Container{}, &runtimeapi.Container{Id: "b"}, &runtimeapi.Container{Metadata: &runtimeapi.ContainerMetadata{}, Image: &runtimeapi.ImageSpec{}})
		},
		"ids twice": func(rt *fakeruntime.Runtime) {
			for i := range 50 {
				rt.AddRawSandbox(sandboxOf("twice", fmt.Sprint(i)))
				rt.AddRawContainer(containerOf("twice", fmt.Sprint(i), "twice"))
			}
		},
		"labels of 1 MB": func(rt *fakeruntime.Runtime) {
			for i := range 7 {
				s, c := sandboxOf(fmt.Sprint("s", i), fmt.Sprint("u", i)), containerOf(fmt.Sprint("c", i), fmt.Sprint("u", i), "c")
				s.Labels, c.Labels["big"] = map[string]string{"big": big}, big
				rt.AddRawSandbox(s)
				rt.AddRawContainer(c)
			}
		},
		"names and ids of 1 MB": func(rt *fakeruntime.Runtime) {
			for i := range 5 {
				uid := fmt.Sprint(i, big)
				s := sandboxOf(uid, uid)
				s.Metadata.Name, s.Metadata.Namespace = big, big[:1000]
				if i < 3 {
					rt.AddRawSandbox(s)
				}
				rt.AddRawContainer(containerOf(fmt.Sprint("c", i), uid, "c"))
			}
		},
		"clocks far off": func(rt *fakeruntime.Runtime) {
			for i, at := range []int64{math.MinInt64, math.MaxInt64, -1, time.Now().Add(100 * 365 * 24 * time.Hour).UnixNano()} {
				s, c := sandboxOf(fmt.Sprint("s", i), fmt.Sprint("u", i)), containerOf(fmt.Sprint("c", i), fmt.Sprint("u", i), "c")
				s.CreatedAt, c.CreatedAt = at, at
				rt.AddRawSandbox(s)
				rt.AddRawContainer(c)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			add(rt)
			p := start(t, socket, options{})
			p.awaitReason("")
			p.relists(10)
			p.awaitReason("")
			rt.ClearRaw()
			p.relists(5)
			p.awaitReason("")
		})
	}
}

func sandboxOf(id, uid string) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: uid}}
}

func containerOf(id, uid, name string) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: uid, Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "i"},
		State:  runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "n", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": name},
	}
}

// TestChangingIDs: every list has other ids than the one before.
func TestChangingIDs(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	n := 0
	rt.SetHook("ListPodSandbox", func(context.Context, any) error {
		n++
		rt.ClearRaw()
		for i := range 300 {
			id := fmt.Sprint(n, "-", i)
			rt.AddRawSandbox(sandboxOf("s"+id, "u"+id))
			rt.AddRawContainer(containerOf("c"+id, "u"+id, "c"))
		}
		return nil
	})
	p := start(t, socket, options{})
	p.await("a relist", func(d *document) bool { return d.LastSeen != nil })
	if d := p.relists(10); d.State == "unhealthy" || d.Relist.Failures > 0 {
		t.Errorf("it says %v of a runtime that answers", d)
	}
}

// TestStatuses: the answers about one pod or container are as large as may be.
// The kubelet takes them, and so does plegd.
func TestStatuses(t *testing.T) {
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 8)
	if err := rt.SetFailpoints("ContainerStatus=oversize(15MiB);PodSandboxStatus=oversize(15MiB)"); err != nil {
		t.Fatal(err)
	}
	p := start(t, socket, options{})
	p.await("the inspections", func(d *document) bool { return d.LastSeen != nil && d.Relist.Attempts > 1 })
	if d := p.relists(5); d.Reason == "PodInspectionStall" || d.Reason == "RuntimeNotReady" {
		t.Errorf("it says %v", d)
	}
}

// TestLongTexts: the runtime's version, conditions and errors are as long as
// it can be.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("all work and no play ", 100_000) // 2.1 MB
	rt, socket := serve(t, fakeruntime.Options{}, 20)
	rt.SetVersion(long, long)
	rt.SetCondition(runtimeapi.RuntimeReady, false, long, long)
	rt.Set("ContainerStatus", fakeruntime.Error(codes.Unknown, long))
	p := start(t, socket, options{})
	p.awaitReason("RuntimeNotReady")
	rt.Set("ListContainers", fakeruntime.Error(codes.Unknown, long))
	p.relists(5)
	for _, path := range []string{"/", "/api/v1/status", "/metrics", "/healthz"} {
		if _, body, err := p.get(p.local, path); err != nil || len(body) > 1<<20 {
			t.Errorf("%s: %d bytes, %v; want at most 1 MiB", path, len(body), err)
		}
	}
}

// TestFatLists: both lists hold names and ids that plegd keeps. They are nearly 16 MiB
// long, or 11 MiB where every entry changes every 3 s: changing lists of nearly 16 MiB
// take 131 MiB at the peak, more than maxRSS.
func TestFatLists(t *testing.T) {
	fill := func(rt *fakeruntime.Runtime, generation string, most int) {
		rt.ClearRaw()
		name := func(kind string, i int) string {
			return (generation + kind + number(i) + strings.Repeat("n", 1<<10))[:1<<10]
		}
		other := map[string]string{"a": strings.Repeat("x", 3000)}
		for i := range most / (4 << 10) {
			s := sandboxOf(name("s", i), name("u", i))
			s.Metadata.Name, s.Metadata.Namespace, s.Annotations = name("p", i), name("ns", i), other
			rt.AddRawSandbox(s)
		}
		for i := range most / (6 << 10) {
			c := containerOf(name("c", i), name("u", i), name("cn", i))
			c.Labels["io.kubernetes.pod.name"], c.Labels["io.kubernetes.pod.namespace"], c.Annotations = name("p", i), name("ns", i), other
			rt.AddRawContainer(c)
		}
	}
	for name, most := range map[string]int{"the same": 8 << 20, "others each time": 6 << 20} {
		t.Run(name, func(t *testing.T) {
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			fill(rt, "0", most)
			p := start(t, socket, options{flags: []string{"--relist-period=500ms", "--log.level=info"}})
			p.relists(1)
			for i := range 4 {
				if name != "the same" {
					fill(rt, fmt.Sprint(i), most)
				}
				time.Sleep(3 * time.Second)
			}
			rt.ClearRaw()
			// Thousands of pods are gone at once.
			p.awaitReason("")
		})
	}
}
