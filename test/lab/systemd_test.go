//go:build e2e

package lab

import (
	"strings"
	"testing"
)

// TestSystemd shows that a unit runs there, and that the machine's files are
// out of its reach.
func TestSystemd(t *testing.T) {
	s := NewSystemd(t, SystemdFile{
		Path: "/etc/systemd/system/probe.service",
		Text: "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo here > /etc/probe'\nPrivateTmp=yes\nProtectHome=yes\n",
	})
	s.Run("systemctl", "start", "probe.service")
	if got := s.Property("probe.service", "ActiveState"); got != "active" {
		t.Errorf("the unit is %q", got)
	}
	if got := strings.TrimSpace(s.Run("cat", "/etc/probe")); got != "here" {
		t.Errorf("the unit wrote %q", got)
	}
	if got := strings.TrimSpace(s.Run("cat", "/proc/1/comm")); got != "systemd" {
		t.Errorf("the first process is %q", got)
	}
}
