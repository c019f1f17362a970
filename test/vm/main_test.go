//go:build e2e

// Package vm tests the installed package in a virtual machine with a kernel of
// its own, cgroup v2 and Debian's systemd and containerd: limits that systemd
// sets on a unit, a disk that stops answering, and what only a whole machine can
// do, such as a power cut, a pause or a suspend.
//
// There is one machine for all tests. It runs in qemu without hardware support,
// so everything in it takes about ten times as long as on the host: the tests
// assert the reports and their order, with generous time limits. The
// machine has no network but two ports that qemu forwards from 127.0.0.1.
package vm

import (
	"os"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) {
	code := lab.Main(m)
	if m := shared.m; m != nil {
		if m.qemu != nil {
			m.powerOff()
		}
		_ = os.RemoveAll(m.dir)
	}
	os.Exit(code)
}
