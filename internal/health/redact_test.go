package health

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

func TestReplaceWord(t *testing.T) {
	for _, tt := range []struct{ in, name, want string }{
		{"the pod list hangs", "list", "the pod (a pod) hangs"},
		{"ListContainers, relisted, a-list, list-x, list.x", "list", "ListContainers, relisted, a-list, list-x, list.x"},
		{"stuck: ns/web. ns/web", "ns/web", "stuck: (a pod). (a pod)"},
		{"ends with web.", "web", "ends with (a pod)."},
		{"anything", "", "anything"},
		{`the name "k8s_POD_web_shop_0" is reserved`, "web", `the name "k8s_POD_(a pod)_shop_0" is reserved`},
		{"list", "list", "(a pod)"},
	} {
		if got := replaceWord(tt.in, tt.name, redacted); got != tt.want {
			t.Errorf("replaceWord(%q, %q) = %q, want %q", tt.in, tt.name, got, tt.want)
		}
	}
}

// TestRedactChain: what a chain of waiting says of a container, a mount or a cgroup
// is in no text without names.
func TestRedactChain(t *testing.T) {
	f := hangingList()
	f.Evidence = Evidence{Chain: &Chain{At: t0, Links: []Link{
		{Kind: KindCall, Name: "list_containers", State: LinkUnanswered, Evidence: "unanswered for 3s"},
		{Kind: KindContainer, Name: "payments/api-7d9/app", State: LinkUnanswered},
		{Kind: KindShim, Name: "containerd-shim", PID: 7, State: LinkBlocked, Evidence: "thread 7 waits in do_umount, for /run/pods/uid-1/rootfs/x"},
		{Kind: KindMount, Name: "/run/pods/uid-1/rootfs", State: LinkFrozen, Evidence: "ext4"},
	}}}
	v := Judge(&f, t0, nil)
	s := &Snapshot{Verdict: *v, Facts: f}
	if len(s.Chain) != 4 || s.Culprit == nil {
		t.Fatalf("%+v", s.Chain)
	}
	out := NamesIn(s).Redact(s)
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"payments", "api-7d9", "uid-1"} {
		if strings.Contains(string(b), name) {
			t.Errorf("%q is in %s", name, b)
		}
	}
	if s.Chain[1].Name != "payments/api-7d9/app" || out.Chain[2].PID != 7 {
		t.Errorf("%+v of %+v", out.Chain, s.Chain)
	}
}
