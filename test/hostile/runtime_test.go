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
			countAttack(t, lists)
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
			countAttack(t, lists)
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

// TestFatLists: both lists are nearly as large as the kubelet accepts, with names and ids that
// plegd keeps, few long entries or as many as it reads, and in the worst case each list has
// other ids than the one before. plegd stays within maxRSS, and its own work on them is never
// shown as a hang of the runtime.
func TestFatLists(t *testing.T) {
	for name, tt := range map[string]struct {
		entries int
		nameLen int
		changes bool
	}{
		"long names":                 {entries: 2600, nameLen: 1 << 10},
		"long names, changing":       {entries: 2600, nameLen: 1 << 10, changes: true},
		"many entries":               {entries: 16_300, nameLen: 64},
		"many entries, changing":     {entries: 16_300, nameLen: 64, changes: true},
		"containers of one pod only": {entries: 16_300, nameLen: 0, changes: true},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, lists)
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			fillFat(rt, "0", tt.entries, tt.nameLen)
			p := start(t, socket, lab.PlegdOptions{Flags: []string{"--relist-period=500ms", "--log.level=info"}})
			for i := range 4 {
				s := p.lists(3)
				if slices.Contains([]string{"RuntimeListStall", "RuntimeUnresponsive"}, s.Reason) {
					t.Errorf("a runtime that answers is %s", describe(s))
				}
				if tt.changes {
					fillFat(rt, fmt.Sprint(i), tt.entries, tt.nameLen)
				}
			}
			rt.ClearRaw()
			p.lists(3) // thousands of pods are gone at once
		})
	}
}

// fillFat replaces the raw entries by so many sandboxes and containers. nameLen is the size of
// each name in bytes; 0 makes all of them containers of one pod.
func fillFat(rt *fakeruntime.Runtime, generation string, entries, nameLen int) {
	rt.ClearRaw()
	name := func(kind string, i int) string {
		return (generation + kind + hex(i) + strings.Repeat("n", max(nameLen, 10)))[:max(nameLen, 10)]
	}
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	for i := range entries {
		s, c := podOf(name("u", i))
		c.Id = name("c", i)
		if nameLen == 0 {
			c.Labels["io.kubernetes.pod.uid"] = "one"
		} else {
			s.Id = name("s", i)
			s.Metadata.Name = name("p", i)
			s.Metadata.Namespace = name("ns", i)
			c.Metadata.Name = name("cn", i)
			c.Labels["io.kubernetes.pod.name"] = name("p", i)
			c.Labels["io.kubernetes.pod.namespace"] = name("ns", i)
			sandboxes = append(sandboxes, s)
		}
		containers = append(containers, c)
	}
	rt.AddRawSandbox(sandboxes...)
	rt.AddRawContainer(containers...)
}
