package cri

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestStatusConditions: a condition that the answer does not hold is nil, which
// is not the same as false.
func TestStatusConditions(t *testing.T) {
	yes := &facts.Condition{Status: true}
	for _, tt := range []struct {
		name string
		set  func(*fakeruntime.Runtime)
		want facts.Status
	}{
		{"both true", func(*fakeruntime.Runtime) {}, facts.Status{Answered: true, RuntimeReady: yes, NetworkReady: yes}},
		{"no network", func(rt *fakeruntime.Runtime) { _ = rt.SetFailpoints("Status=notready(NetworkReady)") }, facts.Status{
			Answered:     true,
			RuntimeReady: yes,
			NetworkReady: &facts.Condition{Reason: fakeruntime.ReasonNetworkNotReady, Message: fakeruntime.MessageNetworkNotReady},
		}},
		{"runtime false", func(rt *fakeruntime.Runtime) { rt.SetCondition(runtimeapi.RuntimeReady, false, "Why", "because") }, facts.Status{
			Answered:     true,
			RuntimeReady: &facts.Condition{Reason: "Why", Message: "because"}, NetworkReady: yes,
		}},
		{"network missing", func(rt *fakeruntime.Runtime) { rt.RemoveCondition(runtimeapi.NetworkReady) }, facts.Status{Answered: true, RuntimeReady: yes}},
		{"both missing, another there", func(rt *fakeruntime.Runtime) {
			rt.RemoveCondition(runtimeapi.RuntimeReady)
			rt.RemoveCondition(runtimeapi.NetworkReady)
			rt.SetCondition("ContainerdHasNoDeprecationWarnings", false, "", "")
		}, facts.Status{Answered: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := serve(t, fakeruntime.Options{})
			tt.set(rt)
			c, _ := clientOf(t, rt, Options{})
			got, err := c.Status(t.Context())
			must.Do(t, err)
			check.Same(t, got, tt.want, "conditions")
		})
	}
}

// TestSingleQuestions: what exists is answered, what does not is NotFound, and an
// empty answer is an answer.
func TestSingleQuestions(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	pod := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"server"}})
	c, _ := clientOf(t, rt, Options{})
	check.NoError(t, c.StatusOf(t.Context(), &Entry{ID: pod.ContainerIDs[0]}), "a container that exists")
	for _, sandbox := range []bool{false, true} {
		if e := failure(t, c.StatusOf(t.Context(), &Entry{Sandbox: sandbox, ID: "nobody"})); e.Code != CodeNotFound {
			t.Errorf("%+v, want NotFound", e)
		}
	}
	rt.Set("PodSandboxStatus", fakeruntime.Empty())
	check.NoError(t, c.StatusOf(t.Context(), &Entry{Sandbox: true, ID: pod.SandboxID}), "an empty answer")
}

// sameLists compares the lists as the client reads them with what the runtime has.
func sameLists(t *testing.T, rt *fakeruntime.Runtime, c *Client) {
	t.Helper()
	wantS, wantC := rt.Snapshot()
	sandboxes, err := c.ListPodSandbox(t.Context())
	must.Do(t, err)
	containers, err := c.ListContainers(t.Context())
	must.Do(t, err)
	want, got := map[string]Entry{}, map[string]Entry{}
	for _, p := range wantS {
		want["sandbox "+p.Id] = plainSandbox(p)
	}
	for _, p := range wantC {
		want["container "+p.Id] = plainContainer(p)
	}
	for _, e := range sandboxes {
		got["sandbox "+e.ID] = *e
	}
	for _, e := range containers {
		got["container "+e.ID] = *e
	}
	if diff := cmp.Diff(want, got); diff != "" || len(sandboxes) != len(wantS) || len(containers) != len(wantC) {
		t.Errorf("%d sandboxes, %d containers (-want +got):\n%s", len(sandboxes), len(containers), diff)
	}
}

// TestTooManyEntries: as many entries as fit are read; one more, and none is.
func TestTooManyEntries(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, _ := clientOf(t, rt, Options{})
	items := make([][]byte, MaxEntries)
	for i := range items {
		items[i] = text(1, fmt.Sprint("s", i))
	}
	rt.AddRawBytes(listOf(items...), nil)
	list, err := c.ListPodSandbox(t.Context())
	if err != nil || len(list) != MaxEntries {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	rt.AddRawBytes(listOf(text(1, "one more")), nil)
	_, err = c.ListPodSandbox(t.Context())
	if e := failure(t, err); !e.TooMany || e.Code != CodeResourceExhausted || e.Bytes > 0 || e.Undecodable {
		t.Fatalf("%+v", e)
	}
	rt.ClearRaw()
	if list, err := c.ListPodSandbox(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d entries afterwards, %v", len(list), err)
	}
}

// TestLongTextsAreCut: the memory for an answer does not grow with its texts.
func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: 64 << 20})
	rt.SetVersion(long, long)
	rt.SetCondition(runtimeapi.NetworkReady, false, long, long)
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: long, Metadata: &runtimeapi.PodSandboxMetadata{Name: long, Namespace: long, Uid: long}})
	c, _ := clientOf(t, rt, Options{})
	v, err := c.Version(t.Context())
	must.Do(t, err)
	s, err := c.Status(t.Context())
	must.Do(t, err)
	list, err := c.ListPodSandbox(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	rt.Set("Version", fakeruntime.Error(codes.Unknown, long))
	_, failed := c.Version(t.Context())
	for what, text := range map[string]string{
		"a runtime's name": v.Name, "a version": v.Version, "a condition's reason": s.NetworkReady.Reason,
		"a condition's message": s.NetworkReady.Message, "an error": failure(t, failed).Message,
		"an id": list[0].ID, "a uid": list[0].PodUID, "a name": list[0].PodName, "a namespace": list[0].PodNamespace,
	} {
		if len(text) > maxMessage || !strings.HasPrefix(long, strings.TrimSuffix(text, "...")) || text == "" {
			t.Errorf("%s has %d bytes", what, len(text))
		}
	}
}

// pluginMessage encodes a plugin as containerd does.
func pluginMessage(p Plugin) []byte {
	field := func(b []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	b := field(field(nil, 1, p.Type), 2, p.ID)
	b = field(b, 3, "io.containerd.service.v1") // requires
	if p.Err != "" {
		status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
		b = field(b, 7, string(field(status, 2, p.Err)))
	}
	return field(nil, 1, string(b))
}

// TestPlugins: the error of the CRI plugin is found among containerd's plugins, that of a
// part before that of the whole.
func TestPlugins(t *testing.T) {
	const whole, part = "io.containerd.grpc.v1", "io.containerd.cri.v1"
	for name, tt := range map[string]struct {
		plugins []Plugin
		want    facts.CRIPlugin
	}{
		"loaded":        {plugins: []Plugin{{Type: whole, ID: "cri"}}, want: facts.CRIPlugin{}},
		"disabled":      {plugins: []Plugin{{Type: whole, ID: "leases"}}, want: facts.CRIPlugin{Absent: true}},
		"disabled, 2.4": {plugins: []Plugin{{Type: part, ID: "images"}, {Type: part, ID: "runtime"}}, want: facts.CRIPlugin{Absent: true}},
		"1.6":           {plugins: []Plugin{{Type: whole, ID: "leases", Err: "x"}, {Type: whole, ID: "cri", Err: "no nydus"}}, want: facts.CRIPlugin{Error: "no nydus"}},
		"2.4":           {plugins: []Plugin{{Type: whole, ID: "cri", Err: "no images"}, {Type: part, ID: "images", Err: "no nydus"}}, want: facts.CRIPlugin{Error: "no nydus"}},
	} {
		var message []byte
		for _, p := range tt.plugins {
			message = append(message, pluginMessage(p)...)
		}
		plugins, err := parsePlugins(message)
		if err != nil || len(plugins) != len(tt.plugins) {
			t.Fatalf("%s: %v, %v", name, plugins, err)
		}
		check.Equal(t, *PluginState(plugins), tt.want, "%s", name)
	}
}

// FuzzPlugins: no answer makes the decoder fail, and its result is bounded.
func FuzzPlugins(f *testing.F) {
	f.Add(pluginMessage(Plugin{Type: "a", ID: "cri", Err: "x"}))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		plugins, _ := parsePlugins(b)
		if len(plugins) > maxPlugins {
			t.Errorf("%d plugins", len(plugins))
		}
		for _, p := range plugins {
			if len(p.Err) > maxMessage || len(p.ID) > maxName || len(p.Type) > maxName {
				t.Errorf("%+v", p)
			}
		}
	})
}

// stream subscribes in a bubble and returns how that ended, after what time, and
// what came.
func stream(t *testing.T, during func(*fakeruntime.Runtime)) (end StreamEnd, took time.Duration, got []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{Seed: 1})
		rt.Start()
		defer rt.Stop()
		c, _ := clientOf(t, rt, Options{})
		go func() {
			time.Sleep(time.Second)
			during(rt)
		}()
		start := time.Now()
		end, err = c.ContainerEvents(t.Context(), 10*time.Second, func(kind EventType, uid string) { got = append(got, kind.String()+" "+uid) })
		took = time.Since(start)
		synctest.Wait()
		check.Equal(t, rt.Subscribers(), 0, "subscribers are left")
	})
	return end, took, got, err
}

// TestLeaseOver: the runtime ends the stream at its deadline, and says what
// happened until then.
func TestLeaseOver(t *testing.T) {
	var pod fakeruntime.Pod
	end, took, got, err := stream(t, func(rt *fakeruntime.Runtime) {
		pod = rt.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns", Containers: []string{"c"}})
		rt.ExitContainer(pod.ContainerIDs[0], 7, "Error")
	})
	if end != StreamLeaseOver || err != nil || took < 10*time.Second || took > 11*time.Second {
		t.Errorf("%d, %v after %s", end, err, took)
	}
	if last := got[len(got)-1]; last != EventType(2).String()+" "+pod.UID {
		t.Error(last)
	}
}

// TestStreamEnds: every other way in which a stream ends.
func TestStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		during func(*fakeruntime.Runtime)
		end    StreamEnd
		code   string
		took   time.Duration
	}{
		"closed": {func(rt *fakeruntime.Runtime) { rt.EndEvents() }, StreamClosed, "", time.Second},
		"killed": {func(rt *fakeruntime.Runtime) { rt.Kill() }, StreamFailed, CodeUnavailable, time.Second},
		"frozen": {func(rt *fakeruntime.Runtime) { _ = rt.SetFailpoints("socket=freeze") }, StreamNotEnded, "", 20 * time.Second},
	} {
		end, took, _, err := stream(t, c.during)
		var e *facts.CallError
		if errors.As(err, &e) != (c.code != "") || e != nil && e.Code != c.code || end != c.end || took != c.took {
			t.Errorf("%s: %d, %v after %s", name, end, err, took)
		}
	}
}

func TestEventsUnimplemented(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	must.Do(t, rt.SetFailpoints("GetContainerEvents=error(Unimplemented: unknown method)"))
	c, _ := clientOf(t, rt, Options{})
	end, err := c.ContainerEvents(t.Context(), time.Minute, func(EventType, string) {})
	var e *facts.CallError
	if !errors.As(err, &e) || e.Code != CodeUnimplemented || e.Operation != OpContainerEvents || end != StreamFailed {
		t.Errorf("%d, %v", end, err)
	}
}

// TestPodLists: one pod's entries, and no trace in the lists' history or in what
// they know.
func TestPodLists(t *testing.T) {
	rt := serve(t, fakeruntime.Options{Seed: 1})
	pods := rt.FillPods(5, 2)
	c, seen := clientOf(t, rt, Options{})
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, calls := c.History(OpListContainers), len(seen.all())
	sandboxes, containers, err := c.PodLists(t.Context(), pods[2].UID)
	if err != nil || len(sandboxes) != 1 || len(containers) != 2 || sandboxes[0].PodUID != pods[2].UID || containers[1].PodUID != pods[2].UID {
		t.Errorf("%v, %v, %v", sandboxes, containers, err)
	}
	check.Equal(t, c.History(OpListContainers), before, "the history of lists")
	check.Equal(t, len(seen.all())-calls, 2, "calls were counted")
	if again, err := c.ListContainers(t.Context()); err != nil || len(again) != 10 {
		t.Errorf("the next list: %d entries, %v", len(again), err)
	}
}
