package chain

import (
	"strings"
	"testing"
)

func TestFingerprints(t *testing.T) {
	nfs := mountFingerprint("nfs4", "filer7.example.org:/exports/a")
	if mountFingerprint("nfs4", "filer7.example.org:/exports/b") != nfs {
		t.Error("two exports of one server have two fingerprints")
	}
	if other := mountFingerprint("nfs4", "filer8.example.org:/exports/a"); other == nfs || strings.Contains(other, "filer") {
		t.Errorf("another server: %q, the first: %q", other, nfs)
	}
	if got := mountFingerprint("cifs", "//nas/share"); got != mountFingerprint("cifs", "//nas/other") || got == "cifs" {
		t.Errorf("cifs: %q", got)
	}
	if got := mountFingerprint("ext4", "/dev/sda1"); got != "ext4" {
		t.Errorf("a local file system: %q", got)
	}
}
