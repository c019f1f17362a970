package health

import "testing"

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
