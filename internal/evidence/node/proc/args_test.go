package proc

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzArgs(f *testing.F) {
	f.Add([]byte("/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/containerd/containerd.sock\x00"), "address")
	f.Add([]byte("a\x00--id=x\x00-id"), "id")
	f.Add([]byte("\x00\x00"), "")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		args := SplitArgs(b)
		if v := ArgValue(args, name); v != "" && !bytes.Contains(b, []byte(v)) {
			t.Errorf("%q has %q as %q", b, v, name)
		}
		if len(args) > len(b)+1 {
			t.Errorf("%d arguments in %d bytes", len(args), len(b))
		}
		if n := FDInode(b); n != "" && strings.ContainsAny(n, "\n") {
			t.Errorf("%q has the inode %q", b, n)
		}
		_, _ = SocketInode(name)
	})
}
