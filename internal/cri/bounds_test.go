package cri

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
)

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
