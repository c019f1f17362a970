//go:build e2e

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// inject makes a runtime hostile.
type inject func(*fakeruntime.Runtime)

// fail sets failpoints.
func fail(spec string) inject {
	return func(rt *fakeruntime.Runtime) {
		if err := rt.SetFailpoints(spec); err != nil {
			panic(err)
		}
	}
}

// raw adds encoded list items.
func raw(sandboxes, containers []byte) inject {
	return func(rt *fakeruntime.Runtime) { rt.AddRawBytes(sandboxes, containers) }
}

const million = 1_000_000

// TestRuntime has runtimes that are none, or half of one, or answer as no runtime does.
// Each is named, stays named, and when the runtime is well again so is everything.
func TestRuntime(t *testing.T) {
	for name, tt := range map[string]struct {
		inject  inject
		reasons []string // one of them is named; none: healthy, as the kubelet would be
	}{
		"garbage instead of HTTP/2":     {fail("socket=garbage"), []string{"CRIVersionUnsupported"}},
		"SETTINGS and then silence":     {fail("socket=settingsonly"), []string{"RuntimeUnresponsive"}},
		"silence":                       {fail("socket=nosettings"), []string{"RuntimeUnresponsive"}},
		"hangs up":                      {fail("socket=close"), []string{"Unknown", "RuntimeRestarting"}},
		"answers that are no messages":  {fail("*=garbage"), []string{"CRIVersionUnsupported"}},
		"answers with nothing in them":  {fail("*=empty"), []string{"RuntimeNotReady"}},
		"lists of 15 MiB":               {fail("ListPodSandbox=oversize(15MiB);ListContainers=oversize(15MiB)"), []string{"TooManyContainers"}},
		"answers that are all too long": {fail("*=oversize(17MiB)"), []string{"ListResponseTooLarge"}},
		"a million sandboxes":           {raw(entries(million, hex), nil), []string{"TooManyContainers"}},
		"a million containers":          {raw(nil, entries(million, hex)), []string{"TooManyContainers"}},
		"six million empty entries":     {raw(bytes.Repeat([]byte{0x0a, 0}, 6<<20), nil), []string{"TooManyContainers"}},
		"a million times the same id":   {raw(entries(million, func(int) string { return "same" }), nil), []string{"TooManyContainers"}},
		"text that is no UTF-8":         {raw(entries(3, func(int) string { return "\xff\xfe\x80" }), nil), []string{"Unknown"}},
		"an entry that is cut off":      {raw([]byte{0x0a, 0x7f, 0x0a}, nil), []string{"Unknown"}},
		"a length beyond all messages":  {raw(nil, []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}), []string{"Unknown"}},
		"nil everywhere": {func(rt *fakeruntime.Runtime) {
			rt.AddRawSandbox(&runtimeapi.PodSandbox{}, &runtimeapi.PodSandbox{Id: "a"}, &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{}})
			rt.AddRawContainer(&runtimeapi.Container{}, &runtimeapi.Container{Id: "b"},
				&runtimeapi.Container{Metadata: &runtimeapi.ContainerMetadata{}, Image: &runtimeapi.ImageSpec{}})
		}, nil},
		"ids twice": {pods(50, func(i int, s *runtimeapi.PodSandbox, c *runtimeapi.Container) { s.Id, c.Id = "twice", "twice" }), nil},
		"labels of 1 MB": {pods(7, func(_ int, s *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			s.Labels, c.Labels["big"] = map[string]string{"big": big}, big
		}), nil},
		"names and ids of 1 MB": {pods(4, func(i int, s *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			uid := fmt.Sprint(i, big)
			s.Id, s.Metadata.Uid, s.Metadata.Name, s.Metadata.Namespace = uid, uid, big, big[:1000]
			c.PodSandboxId, c.Labels["io.kubernetes.pod.uid"] = uid, uid
		}), nil},
		"clocks far off": {pods(4, func(i int, s *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			at := []int64{math.MinInt64, math.MaxInt64, -1, time.Now().Add(100 * 365 * 24 * time.Hour).UnixNano()}[i]
			s.CreatedAt, c.CreatedAt = at, at
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{MaxSendMsgSize: 1 << 30}, 20)
			tt.inject(rt)
			p := start(t, socket, lab.PlegdOptions{})
			t.Log(describe(p.awaitReason(tt.reasons...)))
			if tt.reasons == nil {
				p.relists(10)
			} else {
				time.Sleep(2 * time.Second) // a relist may hang
			}
			p.awaitReason(tt.reasons...)
			fail("")(rt)
			rt.ClearRaw()
			p.awaitReason()
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

func hex(i int) string { return fmt.Sprintf("%07x", i) }

var big = strings.Repeat("x", 1<<20)

// pods adds pods of one container, each changed.
func pods(n int, change func(i int, s *runtimeapi.PodSandbox, c *runtimeapi.Container)) inject {
	return func(rt *fakeruntime.Runtime) {
		for i := range n {
			s, c := podOf(fmt.Sprint(i))
			change(i, s, c)
			rt.AddRawSandbox(s)
			rt.AddRawContainer(c)
		}
	}
}

// podOf is a sandbox and its container.
func podOf(id string) (*runtimeapi.PodSandbox, *runtimeapi.Container) {
	uid := "u" + id
	return &runtimeapi.PodSandbox{Id: "s" + id, Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: uid}},
		&runtimeapi.Container{
			Id: "c" + id, PodSandboxId: uid, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "i"},
			State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Labels: map[string]string{
				"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "n", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "c",
			},
		}
}

// TestAnswersAtTheLimit: each list has other ids than the one before, or each answer about
// a pod is nearly too long. The kubelet takes both, so plegd must not call them a failure.
func TestAnswersAtTheLimit(t *testing.T) {
	for name, inject := range map[string]inject{
		"changing ids": func(rt *fakeruntime.Runtime) {
			n := 0
			rt.SetHook("ListPodSandbox", func(context.Context, any) error {
				n++
				rt.ClearRaw()
				for i := range 300 {
					s, c := podOf(fmt.Sprint(n, "-", i))
					rt.AddRawSandbox(s)
					rt.AddRawContainer(c)
				}
				return nil
			})
		},
		"statuses of 15 MiB": fail("ContainerStatus=oversize(15MiB);PodSandboxStatus=oversize(15MiB)"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 8)
			inject(rt)
			p := start(t, socket, lab.PlegdOptions{})
			p.await("two relists", func(s lab.Status) bool { return s.LastSeen != nil && s.Relist.Attempts > 1 })
			s := p.relists(8)
			if s.State == "unhealthy" || s.Relist.Failures > 0 || slices.Contains([]string{"PodInspectionStall", "RuntimeNotReady"}, s.Reason) {
				t.Errorf("a runtime that answers is %s", describe(s))
			}
		})
	}
}

// TestFatLists: both lists hold names and ids that plegd keeps. They are nearly 16 MiB
// long, or 11 MiB where every entry changes every 3 s: changing lists of nearly 16 MiB
// take 131 MiB at the peak, more than maxRSS.
func TestFatLists(t *testing.T) {
	fill := func(rt *fakeruntime.Runtime, generation string, most int) {
		rt.ClearRaw()
		name := func(kind string, i int) string {
			return (generation + kind + hex(i) + strings.Repeat("n", 1<<10))[:1<<10]
		}
		other := map[string]string{"a": strings.Repeat("x", 3000)}
		for i := range most / (4 << 10) {
			s, c := podOf(name("u", i))
			s.Id, s.Metadata.Name, s.Metadata.Namespace, s.Annotations = name("s", i), name("p", i), name("ns", i), other
			rt.AddRawSandbox(s)
			if i < most/(6<<10) {
				c.Id, c.Metadata.Name, c.Annotations = name("c", i), name("cn", i), other
				c.Labels["io.kubernetes.pod.name"], c.Labels["io.kubernetes.pod.namespace"] = name("p", i), name("ns", i)
				rt.AddRawContainer(c)
			}
		}
	}
	for name, most := range map[string]int{"the same": 8 << 20, "others each time": 6 << 20} {
		t.Run(name, func(t *testing.T) {
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			fill(rt, "0", most)
			p := start(t, socket, lab.PlegdOptions{Flags: []string{"--relist-period=500ms", "--log.level=info"}})
			p.relists(1)
			for i := range 4 {
				if name != "the same" {
					fill(rt, fmt.Sprint(i), most)
				}
				time.Sleep(3 * time.Second)
			}
			rt.ClearRaw()
			p.awaitReason() // thousands of pods are gone at once
		})
	}
}
