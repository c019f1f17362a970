package health

import "testing"

func TestLinkID(t *testing.T) {
	for _, tt := range []struct {
		name string
		link Link
		want string
	}{
		{"a driver's executable", Link{Kind: KindHelper, Name: "aws-cni"}, "aws-cni"},
		{"a name that is no word", Link{Kind: KindProcess, Name: "(sd pam) \"x\""}, "_sd_pam___x_"},
		{"a slice", Link{Kind: KindCgroup, Name: "/kubepods.slice/kubepods-podab12.slice/x.scope"}, "kubepods.slice"},
		{"a file server", Link{Kind: KindMount, Name: "/var/lib/kubelet/pods/1/x", Fingerprint: "nfs4:1c2d3e4f"}, "nfs4:1c2d3e4f"},
		{"a pod has none", Link{Kind: KindPod, Name: "shop/api-1"}, ""},
		{"a container has none", Link{Kind: KindContainer, Name: "shop/api-1/main"}, ""},
	} {
		if got := tt.link.ID(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
